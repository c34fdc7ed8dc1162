// Keyboard: Tab and arrows move between boxes, Enter opens one, a slash starts a search.
import { ARROWS, PAN_PX, ZOOM_STEP } from "../../camera/camera_keys";
import type { App } from "../app";
import type { PlacedBox } from "../layout/placement";
import { contains } from "../layout/rect";
import { rectOf } from "../render/stage";

/** Listen to the keys that reach `target`: all of a page, or those of its part that shows the drawing. */
export function attachKeyboard(app: App, search: HTMLInputElement, target: Document | HTMLElement): void {
  let isLeaving = false; // Escape, then Tab: leaves the drawing
  app.screen.addEventListener("focus", () => (isLeaving = false));
  target.addEventListener("keydown", (received) => {
    const event = received as KeyboardEvent;
    const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (isTyping || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "/") search.focus();
    else if (event.key === "Escape") {
      app.select("");
      isLeaving = true;
    } else if (event.key === "+" || event.key === "=") app.camera.zoom(ZOOM_STEP);
    else if (event.key === "-") app.camera.zoom(1 / ZOOM_STEP);
    else if (event.key === "0") app.fit();
    else if (
      (app.screen.getRootNode() as Document | ShadowRoot).activeElement !== app.screen ||
      (isLeaving && event.key === "Tab")
    )
      return;
    else if (!handleDrawingKey(app, event)) return;
    event.preventDefault();
  });
  app.on("selection", () => {
    const { screen, selected } = app;
    if (selected) screen.setAttribute("aria-activedescendant", `box-${selected}`);
    else screen.removeAttribute("aria-activedescendant");
  });
}

function handleDrawingKey(app: App, event: KeyboardEvent): boolean {
  const arrow = ARROWS[event.key];
  const selectedBox = app.byPath.get(app.selected);
  if (arrow && (event.shiftKey || !selectedBox)) app.camera.pan(-arrow[0] * PAN_PX, -arrow[1] * PAN_PX);
  else if (arrow && selectedBox) selectBox(app, nearestBox(app.boxes, selectedBox, arrow));
  else if (event.key === "Tab") return selectBox(app, nextInOrder(app, selectedBox, event.shiftKey ? -1 : 1));
  else if ((event.key === "Enter" || event.key === " ") && selectedBox) app.toggle(app.selected);
  else return false;
  return true;
}

function selectBox(app: App, box: PlacedBox | undefined): boolean {
  if (!box) return false;
  app.hover("");
  app.select(box.path);
  if (!contains(app.camera.view(), rectOf(box))) app.camera.centre(rectOf(box));
  return true;
}

/** The next box in execution order; none after the last, so that Tab moves on to what follows the drawing. */
function nextInOrder(app: App, selectedBox: PlacedBox | undefined, step: number): PlacedBox | undefined {
  if (!selectedBox) return step > 0 ? app.boxes[1] : undefined;
  const next = app.boxes[app.boxes.indexOf(selectedBox) + step];
  return next?.parent ? next : undefined;
}

/** The nearest box in a direction; boxes straight ahead come before boxes to the side. */
function nearestBox(
  boxes: PlacedBox[],
  from: PlacedBox,
  [right, down]: readonly [number, number],
): PlacedBox | undefined {
  const [x, y] = centreOf(from);
  let [nearest, lowestCost]: [PlacedBox | undefined, number] = [undefined, Infinity];
  for (const box of boxes) {
    if (box === from || box.view.composed) continue;
    const [dx, dy] = [centreOf(box)[0] - x, centreOf(box)[1] - y];
    const [ahead, aside] = [dx * right + dy * down, Math.abs(dx * down) + Math.abs(dy * right)];
    const cost = ahead + 2 * aside;
    if (ahead > 1 && cost < lowestCost) [nearest, lowestCost] = [box, cost];
  }
  return nearest;
}

function centreOf({ x, y, view }: PlacedBox): [number, number] {
  return [x + view.box.width / 2, y + (view.composed ? 10 : view.box.height / 2)];
}
