// Pointer actions on boxes: hover highlights, a click opens a folded box or folds an open one by its title.
import type { GestureHandler } from "../../camera/gestures";
import type { App } from "../app";
import { boxAt, type PlacedBox } from "../layout/placement";

const [TITLE_HEIGHT, TITLE_LINE] = [22, 14];

export type BoxRegion = "leaf" | "title" | "times" | "inside";

/** Which region of a box a world point lies in. */
export function regionOf(box: PlacedBox, x: number, y: number): BoxRegion {
  const { view } = box;
  if (!view.composed) return "leaf";
  const title = view.title;
  if (!title) return "inside";
  const line = Math.floor((y - box.y - 4) / TITLE_LINE);
  if (y - box.y > TITLE_HEIGHT + (title.lines.length - 1) * TITLE_LINE) return "inside";
  if (x - box.x > title.width + 14) return "inside";
  const last = title.lines[title.lines.length - 1];
  const repeatCount = view.fullPlan!.sort === "stack" ? last[last.length - 1] : null;
  if (repeatCount && line >= title.lines.length - 1 && x - box.x >= repeatCount[0] - 3) return "times";
  return "title";
}

export function pointerActions(app: App): GestureHandler {
  const findBox = (left: number, top: number): [PlacedBox | null, BoxRegion] => {
    const [x, y] = app.camera.toWorld(left, top);
    const box = boxAt(app.root, x, y);
    return [box, box ? regionOf(box, x, y) : "inside"];
  };
  const { camera } = app;
  return {
    accepts: ({ button }) => button <= 1,
    drag: (right, down) => camera.pan(right, down),
    pan: (right, down) => camera.pan(right, down),
    zoom: (factor, { x, y }) => camera.zoom(factor, x, y),
    click({ x: left, y: top }) {
      const [box, region] = findBox(left, top);
      app.select(box?.path ?? "");
      if (!box?.view.fullPlan) return;
      if (region === "times") app.setMode(box.path, box.view.mode === "one" ? "open" : "one");
      else if (region === "title" || region === "leaf") app.toggle(box.path);
    },
    hover({ x: left, y: top }) {
      const [box, region] = findBox(left, top);
      app.hover(box?.path ?? "");
      app.screen.classList.toggle("opens", Boolean(box?.view.fullPlan) && region !== "inside");
    },
    leave() {
      app.hover("");
    },
  };
}
