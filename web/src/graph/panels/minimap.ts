// The whole drawing, small, and the window on it; drag to look elsewhere.
import type { App } from "../app";
import { h } from "../dom";
import { contains } from "../layout/rect";
import { rectOf } from "../render/stage";
import { isDark } from "../drawing_theme";

const SIZE = [252, 150];
const EDGE = 4;

export function minimap(app: App): HTMLElement {
  const canvas = h("canvas", { class: "minimap", role: "img", "aria-label": "Overview: drag to look elsewhere" });
  const whole = document.createElement("canvas");
  let [scale, left, top] = [1, 0, 0];
  const ratio = Math.min(2, devicePixelRatio || 1);
  for (const one of [canvas, whole]) [one.width, one.height] = SIZE.map((size) => size * ratio);
  const pen = canvas.getContext("2d", { willReadFrequently: true })!;

  const draw = (): void => {
    const { width, height } = app.root.view.box;
    if (!width) return;
    scale = Math.min((SIZE[0] - 2 * EDGE) / width, (SIZE[1] - 2 * EDGE) / height);
    [left, top] = [(SIZE[0] - width * scale) / 2, (SIZE[1] - height * scale) / 2];
    const base = whole.getContext("2d", { willReadFrequently: true })!;
    const { soft: ink, frame: line } = app.data.colours[isDark(app.theme) ? "dark" : "light"];
    base.setTransform(ratio, 0, 0, ratio, 0, 0);
    base.clearRect(0, 0, SIZE[0], SIZE[1]);
    for (const { x, y, view, parent } of app.boxes) {
      if (!parent) continue;
      base.fillStyle = base.strokeStyle = view.composed ? line : ink;
      const [a, b, c, d] = [left + x * scale, top + y * scale, view.box.width * scale, view.box.height * scale];
      if (view.composed) base.strokeRect(a, b, c, d);
      else base.fillRect(a, b, Math.max(0.7, c), Math.max(0.7, d));
    }
    look();
  };
  const look = (): void => {
    const view = app.camera.view();
    canvas.hidden = contains(view, rectOf(app.root));
    if (canvas.hidden) return;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(whole, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.strokeStyle = isDark(app.theme) ? "#7cb7f5" : "#0b5cad"; // the accent of page.css
    pen.lineWidth = 1.5;
    pen.strokeRect(left + view.x * scale, top + view.y * scale, view.width * scale, view.height * scale);
  };
  const go = (event: PointerEvent): void => {
    if (!(event.buttons & 1)) return;
    const place = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - place.left - left) / scale, (event.clientY - place.top - top) / scale];
    app.camera.look(x, y);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", go);
  app.on("layout", draw);
  app.on("theme", draw);
  app.on("camera", look);
  return canvas;
}
