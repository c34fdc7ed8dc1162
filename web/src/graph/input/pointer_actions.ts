// What a pointer does to boxes: it lights them, opens folded ones, folds open ones by their title.
import type { App } from "../app";
import { boxAt, type Placed } from "../layout/placement";

const [TITLE_HEIGHT, TITLE_LINE] = [22, 14];

export type Spot = "leaf" | "title" | "times" | "inside";

/** Which part of a box a point of the page is on. */
export function spotOf(box: Placed, x: number, y: number): Spot {
  const { view } = box;
  if (!view.composed) return "leaf";
  const words = view.words;
  if (!words) return "inside";
  const line = Math.floor((y - box.y - 4) / TITLE_LINE);
  if (y - box.y > TITLE_HEIGHT + (words.lines.length - 1) * TITLE_LINE) return "inside";
  if (x - box.x > words.width + 14) return "inside";
  const last = words.lines[words.lines.length - 1];
  const times = view.whole!.sort === "stack" ? last[last.length - 1] : null;
  if (times && line >= words.lines.length - 1 && x - box.x >= times[0] - 3) return "times";
  return "title";
}

export function pointing(app: App): { click(x: number, y: number): void; hover(x: number, y: number): void; leave(): void } {
  const find = (left: number, top: number): [Placed | null, Spot] => {
    const [x, y] = app.camera.toWorld(left, top);
    const box = boxAt(app.root, x, y);
    return [box, box ? spotOf(box, x, y) : "inside"];
  };
  return {
    click(left, top) {
      const [box, spot] = find(left, top);
      app.select(box?.path ?? "");
      if (!box?.view.whole) return;
      if (spot === "times") app.change(box.path, box.view.mode === "one" ? "open" : "one");
      else if (spot === "title" || spot === "leaf") app.toggle(box.path);
    },
    hover(left, top) {
      const [box, spot] = find(left, top);
      app.hover(box?.path ?? "");
      app.screen.classList.toggle("opens", Boolean(box?.view.whole) && spot !== "inside");
    },
    leave() {
      app.hover("");
    },
  };
}
