// The minimap: the whole drawing, and the visible window on it; drag to pan.
import type { App } from "../app";
import { h } from "../dom";
import { contains } from "../layout/rect";
import { rectOf } from "../render/stage";
import { isDark } from "../drawing_theme";

const SIZE = [252, 150];
const MARGIN_PX = 4;

export function minimap(app: App): HTMLElement {
  const canvas = h("canvas", { class: "minimap", role: "img", "aria-label": "Overview: drag to look elsewhere" });
  const buffer = document.createElement("canvas");
  let [scale, left, top] = [1, 0, 0];
  const ratio = Math.min(2, devicePixelRatio || 1);
  for (const layer of [canvas, buffer]) [layer.width, layer.height] = SIZE.map((size) => size * ratio);
  const context = canvas.getContext("2d", { willReadFrequently: true })!;

  const draw = (): void => {
    const { width, height } = app.root.view.box;
    if (!width) return;
    scale = Math.min((SIZE[0] - 2 * MARGIN_PX) / width, (SIZE[1] - 2 * MARGIN_PX) / height);
    [left, top] = [(SIZE[0] - width * scale) / 2, (SIZE[1] - height * scale) / 2];
    const bufferContext = buffer.getContext("2d", { willReadFrequently: true })!;
    const { soft: ink, frame: line } = app.data.colours[isDark(app.theme) ? "dark" : "light"];
    bufferContext.setTransform(ratio, 0, 0, ratio, 0, 0);
    bufferContext.clearRect(0, 0, SIZE[0], SIZE[1]);
    for (const { x, y, view, parent } of app.boxes) {
      if (!parent) continue;
      bufferContext.fillStyle = bufferContext.strokeStyle = view.composed ? line : ink;
      const [a, b, c, d] = [left + x * scale, top + y * scale, view.box.width * scale, view.box.height * scale];
      if (view.composed) bufferContext.strokeRect(a, b, c, d);
      else bufferContext.fillRect(a, b, Math.max(0.7, c), Math.max(0.7, d));
    }
    drawWindow();
  };
  const drawWindow = (): void => {
    const view = app.camera.view();
    canvas.hidden = contains(view, rectOf(app.root));
    if (canvas.hidden) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(buffer, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.strokeStyle = isDark(app.theme) ? "#7cb7f5" : "#0b5cad"; // the accent of graph.css
    context.lineWidth = 1.5;
    context.strokeRect(left + view.x * scale, top + view.y * scale, view.width * scale, view.height * scale);
  };
  const drag = (event: PointerEvent): void => {
    if (!(event.buttons & 1)) return;
    const bounds = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - bounds.left - left) / scale, (event.clientY - bounds.top - top) / scale];
    app.camera.centreOn(x, y);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag(event);
  });
  canvas.addEventListener("pointermove", drag);
  app.on("layout", draw);
  app.on("theme", draw);
  app.on("camera", drawWindow);
  return canvas;
}
