// The keyboard: through the boxes with Tab and arrows, open with Enter, search with a slash.
import type { App } from "../app";
import type { Placed } from "../layout/placement";
import { contains } from "../layout/rect";
import { rectOf } from "../render/stage";

const STEP = 60; // pixels that an arrow moves the drawing
const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function keys(app: App, search: HTMLInputElement): void {
  let leaving = false; // Escape, then Tab: out of the drawing
  app.screen.addEventListener("focus", () => (leaving = false));
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (typing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "/") search.focus();
    else if (event.key === "Escape") {
      app.select("");
      leaving = true;
    }
    else if (event.key === "+" || event.key === "=") app.camera.zoom(1.25);
    else if (event.key === "-") app.camera.zoom(0.8);
    else if (event.key === "0") app.fit();
    else if (document.activeElement !== app.screen || (leaving && event.key === "Tab")) return;
    else if (!inDrawing(app, event)) return;
    event.preventDefault();
  });
  app.on("selection", () => {
    const { screen, selected } = app;
    if (selected) screen.setAttribute("aria-activedescendant", `box-${selected}`);
    else screen.removeAttribute("aria-activedescendant");
  });
}

function inDrawing(app: App, event: KeyboardEvent): boolean {
  const arrow = ARROWS[event.key];
  const chosen = app.byPath.get(app.selected);
  if (arrow && (event.shiftKey || !chosen)) app.camera.pan(-arrow[0] * STEP, -arrow[1] * STEP);
  else if (arrow && chosen) go(app, neighbour(app.boxes, chosen, arrow));
  else if (event.key === "Tab") return go(app, inOrder(app, chosen, event.shiftKey ? -1 : 1));
  else if ((event.key === "Enter" || event.key === " ") && chosen) app.toggle(app.selected);
  else return false;
  return true;
}

function go(app: App, box: Placed | undefined): boolean {
  if (!box) return false;
  app.hover("");
  app.select(box.path);
  if (!contains(app.camera.view(), rectOf(box))) app.camera.centre(rectOf(box));
  return true;
}

/** The next box in the order they ran; none after the last, so that Tab goes on behind the drawing. */
function inOrder(app: App, chosen: Placed | undefined, step: number): Placed | undefined {
  if (!chosen) return step > 0 ? app.boxes[1] : undefined;
  const next = app.boxes[app.boxes.indexOf(chosen) + step];
  return next?.parent ? next : undefined;
}

/** The nearest box in a direction, what lies straight ahead before what lies aside. */
function neighbour(boxes: Placed[], from: Placed, [right, down]: [number, number]): Placed | undefined {
  const [x, y] = middle(from);
  let [best, least]: [Placed | undefined, number] = [undefined, Infinity];
  for (const box of boxes) {
    if (box === from || box.view.composed) continue;
    const [dx, dy] = [middle(box)[0] - x, middle(box)[1] - y];
    const [ahead, aside] = [dx * right + dy * down, Math.abs(dx * down) + Math.abs(dy * right)];
    const far = ahead + 2 * aside;
    if (ahead > 1 && far < least) [best, least] = [box, far];
  }
  return best;
}

function middle({ x, y, view }: Placed): [number, number] {
  return [x + view.box.width / 2, y + (view.composed ? 10 : view.box.height / 2)];
}
