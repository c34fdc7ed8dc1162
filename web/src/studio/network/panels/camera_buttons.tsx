// Camera buttons: fit, reset and four saved views.
import { useEffect, useState } from "preact/hooks";
import { Icon } from "../../shell/icons";
import { useValue } from "../../store";
import type { NetworkPresenter } from "../presenter";
import { Scene } from "../scene/scene";
import { savedViews, saveView } from "../settings";

/** The camera's buttons. */
export function CameraButtons({ presenter }: { presenter: NetworkPresenter }) {
  const net = useValue(presenter.store.net);
  const name = net?.name ?? "";
  const [views, setViews] = useState(() => savedViews(name));
  const [isSaving, setSaving] = useState(false);
  useEffect(() => setViews(savedViews(name)), [name]);
  const scene = presenter.scene;
  if (!(scene instanceof Scene)) return null;
  const press = (number: number, save: boolean): void => {
    const saved = views[number];
    if (save || isSaving) {
      saveView(name, number, scene.orbit.pose);
      setViews(savedViews(name));
      setSaving(false);
      presenter.store.notice(`View ${number + 1} saved`, "done");
    } else if (saved) {
      scene.markTouched();
      scene.moveTo(saved, true);
    } else presenter.store.notice(`View ${number + 1} is empty: Shift-click saves what you see now.`);
  };
  return (
    <div class="group" role="group" aria-label="Camera">
      <button aria-label="Fit" title="All of it, from here (F)" onClick={() => scene.fit()}>
        <Icon name="whole" />
      </button>
      <button aria-label="Reset" title="As at first (R)" onClick={() => scene.reset()}>
        <Icon name="reset" />
      </button>
      <div class="joined" role="group" aria-label="Saved views">
        {views.map((view, number) => (
          <button
            key={number}
            class={view ? "saved" : "unset"}
            aria-label={isSaving ? `Save view ${number + 1}` : `View ${number + 1}${view ? "" : ", empty"}`}
            title={`View ${number + 1} (key ${number + 6}); Shift-click saves`}
            onClick={(event) => press(number, event.shiftKey)}
          >
            {number + 1}
          </button>
        ))}
        <button
          aria-pressed={isSaving}
          title="Then press a number: it saves what you see now"
          onClick={() => setSaving(!isSaving)}
        >
          Set
        </button>
      </div>
    </div>
  );
}
