// Where it is looked at from: fit, reset and four views that can be saved.
import { useEffect, useState } from "preact/hooks";
import { Icon } from "../../shell/icons";
import { useValue } from "../../store";
import type { Board } from "../presenter";
import { Scene } from "../scene/scene";
import { savedViews, saveView } from "../settings";

/** The camera's buttons. */
export function CameraTools({ board }: { board: Board }) {
  const net = useValue(board.store.net);
  const name = net?.name ?? "";
  const [views, setViews] = useState(() => savedViews(name));
  const [setting, setSetting] = useState(false);
  useEffect(() => setViews(savedViews(name)), [name]);
  const scene = board.scene;
  if (!(scene instanceof Scene)) return null;
  const press = (number: number, save: boolean): void => {
    const saved = views[number];
    if (save || setting) {
      saveView(name, number, scene.orbit.pose);
      setViews(savedViews(name));
      setSetting(false);
      board.store.notice(`View ${number + 1} saved`, "done");
    } else if (saved) {
      scene.touch();
      scene.go(saved, true);
    } else board.store.notice(`View ${number + 1} is empty: Shift-click saves what you see now.`);
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
            aria-label={setting ? `Save view ${number + 1}` : `View ${number + 1}${view ? "" : ", empty"}`}
            title={`View ${number + 1} (key ${number + 6}); Shift-click saves`}
            onClick={(event) => press(number, event.shiftKey)}
          >
            {number + 1}
          </button>
        ))}
        <button aria-pressed={setting} title="Then press a number: it saves what you see now" onClick={() => setSetting(!setting)}>
          Set
        </button>
      </div>
    </div>
  );
}
