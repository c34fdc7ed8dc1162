// The tab's keys, as the page's help lists them.
import type { Key } from "../key_bindings";
import type { Board } from "./presenter";
import { neighbour } from "./scene/unit_grid";
import { Scene } from "./scene/scene";
import { savedViews } from "./settings";
import { goTo, placeNow, stepBy } from "./panels/time_bar";
import { moveTo, toggled } from "./values/timeline";

const ARROWS = [
  { name: "ArrowLeft", right: -1, down: 0 },
  { name: "ArrowRight", right: 1, down: 0 },
  { name: "ArrowUp", right: 0, down: -1 },
  { name: "ArrowDown", right: 0, down: 1 },
];
const [TURN, PAN] = [14, 40]; // pixels of a drag that does the same

/** Keys that mean something while the tab is shown. */
export function keysOf(board: Board): Key[] {
  const moments = () => board.store.moments.get();
  const key = (name: string, what: string, run: () => void, shown?: string): Key => ({ key: name, shown, what, run, tab: "network" }); // prettier-ignore
  return [
    key(",", "One moment back", () => stepBy(board, -1)),
    key(".", "One moment on", () => stepBy(board, 1)),
    key("<", "10 moments back", () => stepBy(board, -10)),
    key(">", "10 moments on", () => stepBy(board, 10)),
    key("Home", "First moment", () => goTo(board, moveTo(moments(), 0))),
    key("End", "Live: follow the newest moment", () => goTo(board, { live: true, moment: -1, playing: false })),
    key("k", "Play or pause the recorded moments", () => goTo(board, toggled(moments(), placeNow(board)))),
    key("f", "Fit the network into the window", () => withScene(board, (scene) => scene.fit())),
    key("r", "Reset the camera", () => withScene(board, (scene) => scene.reset())),
    key("+", "Nearer", () => zoom(board, 0.85)),
    key("-", "Farther", () => zoom(board, 1 / 0.85), "−"),
    ...[0, 1, 2, 3].map((n) => key(String(n + 6), `Saved view ${n + 1}`, () => goToView(board, n))),
    key("l", "Names of layers on or off", () => board.settings.patch({ labels: !board.settings.get().labels })),
    key("a", "Arrows on or off", () => board.settings.patch({ arrows: !board.settings.get().arrows })),
    key("v", "Next variable", () => nextVariable(board)),
    ...ARROWS.map(({ name, right, down }, n) =>
      key(name, n ? "" : "To the unit beside the selected one; where none is, turn the picture", () => walk(board, right, down), "← → ↑ ↓")),
    ...ARROWS.map(({ name, right, down }, n) =>
      key(`Shift+${name}`, n ? "" : "Move the picture", () => move(board, "pan", right * PAN, down * PAN), "Shift ← → ↑ ↓")),
    key("[", "To the layer below", () => changeLayer(board, -1)),
    key("]", "To the layer above", () => changeLayer(board, 1)),
    key("Escape", "Clear the selection", () => board.select(null), "Esc"),
  ];
}

function withScene(board: Board, run: (scene: Scene) => void): void {
  if (board.scene instanceof Scene) run(board.scene);
}

function zoom(board: Board, factor: number): void {
  withScene(board, (scene) => {
    scene.touch();
    scene.orbit.zoom(factor);
  });
}

function goToView(board: Board, number: number): void {
  const pose = savedViews(board.store.net.get()?.name ?? "")[number];
  withScene(board, (scene) => {
    if (!pose) return board.store.notice(`View ${number + 1} is empty: Shift-click its button saves what you see now.`);
    scene.touch();
    scene.go(pose, true);
  });
}

function move(board: Board, how: "turn" | "pan", right: number, down: number): void {
  withScene(board, (scene) => {
    scene.touch();
    scene.orbit[how](-right, -down); // one looks to the right, so that the picture goes to the left
  });
}

function walk(board: Board, right: number, down: number): void {
  const selected = board.store.selection.get();
  const placed = board.store.net.get()?.layers.find(({ layer }) => layer.name === selected?.layer);
  if (!selected || !placed) return move(board, "turn", right * TURN, down * TURN);
  const unit = neighbour(placed.grid, placed.units, selected.unit, right, down);
  if (unit !== selected.unit) board.select({ layer: selected.layer, unit });
}

// The layer above or below, at about the same place; the first one where nothing is selected.
function changeLayer(board: Board, by: number): void {
  const layers = board.store.net.get()?.layers.filter(({ units }) => units) ?? [];
  if (!layers.length) return;
  const selected = board.store.selection.get();
  const at = layers.findIndex(({ layer }) => layer.name === selected?.layer);
  const to = layers[at < 0 ? 0 : Math.max(0, Math.min(layers.length - 1, at + by))];
  if (at >= 0 && to === layers[at]) return;
  const share = at < 0 ? 0 : selected!.unit / layers[at].units;
  board.select({ layer: to.layer.name, unit: Math.floor(share * to.units) });
}

function nextVariable(board: Board): void {
  const names = board.store.net.get()?.variables.map(({ name }) => name) ?? [];
  const at = names.indexOf(board.store.look.get().variable);
  if (names.length) board.store.look.patch({ variable: names[(at + 1) % names.length] });
}
