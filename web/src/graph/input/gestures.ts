// Wheel, drag and pinch move the camera; a press that did not move is a click.
import type { Camera } from "./camera";

const STILL = 4; // pixels that a hand trembles
const TWICE_MS = 350; // between two taps that are one
const LINE = 16; // pixels of a wheel that counts lines

export interface Pointing {
  click(left: number, top: number): void;
  hover(left: number, top: number): void;
  leave(): void;
}

export function listen(target: HTMLElement, camera: Camera, pointing: Pointing): void {
  const down = new Map<number, [number, number]>();
  let moved = 0;
  let [repeated, tapped] = [false, 0]; // the second click of two would hit what the first one opened
  const at = (event: MouseEvent): [number, number] => {
    const { left, top } = target.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  target.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const turn = event.deltaY * (event.deltaMode === 1 ? LINE : 1);
      camera.zoom(Math.exp(-Math.max(-300, Math.min(300, turn)) * (event.ctrlKey ? 0.01 : 0.0015)), ...at(event));
    },
    { passive: false },
  );
  target.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    if (!down.size) moved = 0;
    repeated = event.pointerType === "touch" && event.timeStamp - tapped < TWICE_MS;
    down.set(event.pointerId, at(event));
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("mousedown", (event) => (repeated = event.detail > 1));
  target.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const before = down.get(event.pointerId);
    if (!before) return pointing.hover(x, y);
    const others = [...down].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    moved += Math.hypot(x - before[0], y - before[1]);
    if (others.length === 1) {
      const [ox, oy] = others[0];
      const [was, is] = [Math.hypot(before[0] - ox, before[1] - oy), Math.hypot(x - ox, y - oy)];
      if (was > 0) camera.zoom(is / was, (x + ox) / 2, (y + oy) / 2);
      camera.pan((x - before[0]) / 2, (y - before[1]) / 2);
    } else if (moved > STILL) {
      target.classList.add("dragged");
      camera.pan(x - before[0], y - before[1]);
    }
    down.set(event.pointerId, [x, y]);
  });
  const up = (event: PointerEvent): void => {
    if (!down.delete(event.pointerId)) return;
    target.classList.remove("dragged");
    tapped = event.timeStamp;
    if (event.type === "pointerup" && moved <= STILL && !down.size && !repeated) pointing.click(...at(event));
  };
  target.addEventListener("pointerup", up);
  target.addEventListener("pointercancel", up);
  target.addEventListener("pointerleave", () => pointing.leave());
}
