// Wheel, drag and pinch move the camera; a press that did not move is a click.
import type { Camera } from "./camera";

const CLICK_SLOP_PX = 4; // pixels a press may move and still be a click
const DOUBLE_TAP_MS = 350; // maximum time between the two taps of a double tap
const WHEEL_LINE_PX = 16; // pixels per line, for wheels that count lines

export interface PointerHandler {
  click(left: number, top: number): void;
  hover(left: number, top: number): void;
  leave(): void;
}

export function attachGestures(target: HTMLElement, camera: Camera, handler: PointerHandler): void {
  const pointers = new Map<number, [number, number]>();
  let travelled = 0;
  let [isDoubleTap, lastTap] = [false, 0]; // the second click of a double click would hit what the first one opened
  const localPoint = (event: MouseEvent): [number, number] => {
    const { left, top } = target.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  target.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const delta = event.deltaY * (event.deltaMode === 1 ? WHEEL_LINE_PX : 1);
      camera.zoom(
        Math.exp(-Math.max(-300, Math.min(300, delta)) * (event.ctrlKey ? 0.01 : 0.0015)),
        ...localPoint(event),
      );
    },
    { passive: false },
  );
  target.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    if (!pointers.size) travelled = 0;
    isDoubleTap = event.pointerType === "touch" && event.timeStamp - lastTap < DOUBLE_TAP_MS;
    pointers.set(event.pointerId, localPoint(event));
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("mousedown", (event) => (isDoubleTap = event.detail > 1));
  target.addEventListener("pointermove", (event) => {
    const [x, y] = localPoint(event);
    const last = pointers.get(event.pointerId);
    if (!last) return handler.hover(x, y);
    const otherPointers = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    travelled += Math.hypot(x - last[0], y - last[1]);
    if (otherPointers.length === 1) {
      const [ox, oy] = otherPointers[0];
      const [oldDistance, newDistance] = [Math.hypot(last[0] - ox, last[1] - oy), Math.hypot(x - ox, y - oy)];
      if (oldDistance > 0) camera.zoom(newDistance / oldDistance, (x + ox) / 2, (y + oy) / 2);
      camera.pan((x - last[0]) / 2, (y - last[1]) / 2);
    } else if (travelled > CLICK_SLOP_PX) {
      target.classList.add("dragged");
      camera.pan(x - last[0], y - last[1]);
    }
    pointers.set(event.pointerId, [x, y]);
  });
  const release = (event: PointerEvent): void => {
    if (!pointers.delete(event.pointerId)) return;
    target.classList.remove("dragged");
    lastTap = event.timeStamp;
    if (event.type === "pointerup" && travelled <= CLICK_SLOP_PX && !pointers.size && !isDoubleTap)
      handler.click(...localPoint(event));
  };
  target.addEventListener("pointerup", release);
  target.addEventListener("pointercancel", release);
  target.addEventListener("pointerleave", () => handler.leave());
}
