// Key bindings of the Network tab, as listed in the help.
import { ARROWS, PAN_PX, ZOOM_STEP } from "../../camera/camera_keys";
import type { KeyBinding } from "../key_bindings";
import type { NetworkPresenter } from "./presenter";
import { neighbour } from "./scene/unit_grid";
import { Scene } from "./scene/scene";
import { savedViews } from "./settings";
import { seek, currentPosition, stepBy } from "./panels/time_bar";
import { moveTo, togglePlay } from "./values/timeline";

const TURN_PX = 14; // of an equivalent drag

/** The bindings that are active on the Network tab. */
export function networkKeyBindings(presenter: NetworkPresenter): KeyBinding[] {
  const moments = () => presenter.store.moments.get();
  const key = (name: string, description: string, run: () => void, label?: string): KeyBinding => ({ key: name, label, description, run, tab: "network" }); // prettier-ignore
  return [
    key(",", "One moment back", () => stepBy(presenter, -1)),
    key(".", "One moment on", () => stepBy(presenter, 1)),
    key("<", "10 moments back", () => stepBy(presenter, -10)),
    key(">", "10 moments on", () => stepBy(presenter, 10)),
    key("Home", "First moment", () => seek(presenter, moveTo(moments(), 0))),
    key("End", "Live: follow the newest moment", () => seek(presenter, { live: true, moment: -1, isPlaying: false })),
    key("k", "Play or pause the recorded moments", () =>
      seek(presenter, togglePlay(moments(), currentPosition(presenter))),
    ),
    key("f", "Fit the network into the window", () => withScene(presenter, (scene) => scene.fit())),
    key("r", "Reset the camera", () => withScene(presenter, (scene) => scene.reset())),
    key("+", "Nearer", () => zoom(presenter, 1 / ZOOM_STEP)),
    key("-", "Farther", () => zoom(presenter, ZOOM_STEP), "−"),
    ...[0, 1, 2, 3].map((n) => key(String(n + 6), `Saved view ${n + 1}`, () => goToView(presenter, n))),
    key("l", "Names of layers on or off", () => presenter.settings.patch({ labels: !presenter.settings.get().labels })),
    key("a", "Arrows on or off", () => presenter.settings.patch({ arrows: !presenter.settings.get().arrows })),
    key("v", "Next variable", () => nextVariable(presenter)),
    ...Object.entries(ARROWS).map(([name, [right, down]], n) =>
      key(
        name,
        n ? "" : "To the unit beside the selected one; where none is, turn the picture",
        () => moveSelection(presenter, right, down),
        "← → ↑ ↓",
      ),
    ),
    ...Object.entries(ARROWS).map(([name, [right, down]], n) =>
      key(
        `Shift+${name}`,
        n ? "" : "Move the picture",
        () => moveCamera(presenter, "pan", right * PAN_PX, down * PAN_PX),
        "Shift ← → ↑ ↓",
      ),
    ),
    key("[", "To the layer below", () => changeLayer(presenter, -1)),
    key("]", "To the layer above", () => changeLayer(presenter, 1)),
    key("/", "Find a layer and go there", () => presenter.searchField?.focus()),
    key("Enter", "Open the module of the selected layer", () => openSelected(presenter)),
    key("Escape", "Clear the selection; where there is none, out of the open module", () => stepOut(presenter), "Esc"),
  ];
}

function openSelected(presenter: NetworkPresenter): void {
  const layer = presenter.store.selection.get()?.layer ?? presenter.hovered.get()?.target.layer;
  if (layer) presenter.open(layer);
}

function stepOut(presenter: NetworkPresenter): void {
  const focus = presenter.folding.focus.get();
  if (presenter.store.selection.get()) presenter.select(null);
  else if (focus) presenter.folding.leave(focus);
  else withScene(presenter, (scene) => scene.leaveFocus());
}

function withScene(presenter: NetworkPresenter, run: (scene: Scene) => void): void {
  if (presenter.scene instanceof Scene) run(presenter.scene);
}

function zoom(presenter: NetworkPresenter, factor: number): void {
  withScene(presenter, (scene) => {
    scene.markTouched();
    scene.orbit.zoom(factor);
  });
}

function goToView(presenter: NetworkPresenter, number: number): void {
  const pose = savedViews(presenter.store.net.get()?.name ?? "")[number];
  withScene(presenter, (scene) => {
    if (!pose)
      return presenter.store.notice(`View ${number + 1} is empty: Shift-click its button saves what you see now.`);
    scene.markTouched();
    scene.moveTo(pose, true);
  });
}

function moveCamera(presenter: NetworkPresenter, motion: "turn" | "pan", right: number, down: number): void {
  withScene(presenter, (scene) => {
    scene.markTouched();
    scene.orbit[motion](-right, -down); // the camera moves right, so the picture moves left
  });
}

function moveSelection(presenter: NetworkPresenter, right: number, down: number): void {
  const selected = presenter.store.selection.get();
  const placed = presenter.store.net.get()?.layers.find(({ layer }) => layer.name === selected?.layer);
  if (!selected || !placed) return moveCamera(presenter, "turn", right * TURN_PX, down * TURN_PX);
  const unit = neighbour(placed.grid, placed.units, selected.unit, right, down);
  if (unit !== selected.unit) presenter.select({ layer: selected.layer, unit });
}

// Select the layer above or below, at about the same relative position; the first layer if nothing is selected.
function changeLayer(presenter: NetworkPresenter, step: number): void {
  const layers = presenter.folding.visible.get()?.net.layers.filter(({ units }) => units) ?? [];
  if (!layers.length) return;
  const selected = presenter.store.selection.get();
  const index = layers.findIndex(({ layer }) => layer.name === selected?.layer);
  const target = layers[index < 0 ? 0 : Math.max(0, Math.min(layers.length - 1, index + step))];
  if (index >= 0 && target === layers[index]) return;
  const fraction = index < 0 ? 0 : selected!.unit / layers[index].units;
  presenter.select({ layer: target.layer.name, unit: Math.floor(fraction * target.units) });
}

function nextVariable(presenter: NetworkPresenter): void {
  const names = presenter.store.net.get()?.variables.map(({ name }) => name) ?? [];
  const index = names.indexOf(presenter.store.viewSettings.get().variable);
  if (names.length) presenter.store.viewSettings.patch({ variable: names[(index + 1) % names.length] });
}
