// Gestures over a picture, in 2D and 3D alike: drag, pinch and wheel move the camera; a press that did not move is a click.

const CLICK_SLOP_PX = 5; // that a press may move and still be a click
const DOUBLE_TAP_MS = 350; // maximum time between the two taps of a double tap
const WHEEL_LINE_PX = 16; // pixels per line, for wheels that count lines
const MAX_WHEEL_PX = 300;
const [WHEEL_RATE, PINCH_RATE] = [0.0015, 0.01]; // zoom per pixel; a trackpad's pinch comes as a wheel with Ctrl

/** A point of the picture, in pixels from its upper left corner. */
export interface Point {
  x: number;
  y: number;
}

/** What gestures do. */
export interface GestureHandler {
  accepts?(event: PointerEvent): boolean; // false: the press is for something else, such as a button over the picture
  pressed?(): void;
  drag(right: number, down: number, event: PointerEvent): void;
  pan(right: number, down: number): void; // while pinching
  zoom(factor: number, at: Point): void; // above 1: nearer
  click(at: Point): void;
  hover(at: Point): void;
  leave(): void;
}

/** Listen for gestures on an element; returns a function that ends it. */
export function attachGestures(target: HTMLElement, handler: GestureHandler): () => void {
  const abort = new AbortController();
  const tracker = new PointerTracker(target, handler);
  const on = <Name extends keyof HTMLElementEventMap>(name: Name, run: (event: HTMLElementEventMap[Name]) => void) =>
    target.addEventListener(name, run, { signal: abort.signal, passive: false });
  on("pointerdown", (event) => tracker.down(event));
  on("pointermove", (event) => tracker.move(event));
  on("pointerup", (event) => tracker.up(event));
  on("pointercancel", (event) => tracker.up(event));
  on("mousedown", (event) => tracker.countClicks(event.detail));
  on("pointerleave", () => handler.leave());
  on("wheel", (event) => tracker.wheel(event));
  return () => abort.abort();
}

/** The zoom factor of a wheel's turn; above 1: nearer. */
export function wheelFactor({
  deltaY,
  deltaMode,
  ctrlKey,
}: Pick<WheelEvent, "deltaY" | "deltaMode" | "ctrlKey">): number {
  const pixels = deltaY * (deltaMode === 1 ? WHEEL_LINE_PX : 1);
  return Math.exp(-Math.max(-MAX_WHEEL_PX, Math.min(MAX_WHEEL_PX, pixels)) * (ctrlKey ? PINCH_RATE : WHEEL_RATE));
}

class PointerTracker {
  private readonly pointers = new Map<number, Point>();
  private travelled = 0;
  private lastTap = -Infinity;
  private isRepeated = false; // the second click of a double click would hit what the first one opened

  constructor(
    private readonly target: HTMLElement,
    private readonly handler: GestureHandler,
  ) {}

  down(event: PointerEvent): void {
    if (this.handler.accepts?.(event) === false) return;
    this.target.setPointerCapture(event.pointerId);
    this.handler.pressed?.();
    if (!this.pointers.size) this.travelled = 0;
    this.isRepeated = event.pointerType === "touch" && event.timeStamp - this.lastTap < DOUBLE_TAP_MS;
    this.pointers.set(event.pointerId, this.pointOf(event));
  }

  countClicks(count: number): void {
    this.isRepeated = count > 1;
  }

  move(event: PointerEvent): void {
    const [last, point] = [this.pointers.get(event.pointerId), this.pointOf(event)];
    if (!last) return this.handler.hover(point);
    const [right, down] = [point.x - last.x, point.y - last.y];
    this.travelled += Math.hypot(right, down);
    this.pointers.set(event.pointerId, point);
    if (this.travelled < CLICK_SLOP_PX) return;
    this.target.classList.add("dragged");
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) this.pinch(last, point, other);
    else this.handler.drag(right, down, event);
  }

  up(event: PointerEvent): void {
    if (!this.pointers.delete(event.pointerId)) return;
    this.target.classList.remove("dragged");
    this.lastTap = event.timeStamp;
    const isClick = event.type === "pointerup" && event.button === 0 && !this.isRepeated;
    if (isClick && this.travelled < CLICK_SLOP_PX && !this.pointers.size) this.handler.click(this.pointOf(event));
  }

  wheel(event: WheelEvent): void {
    event.preventDefault();
    this.handler.zoom(wheelFactor(event), this.pointOf(event));
  }

  private pinch(last: Point, point: Point, other: Point): void {
    const distance = (from: Point): number => Math.hypot(from.x - other.x, from.y - other.y);
    const middle = { x: (point.x + other.x) / 2, y: (point.y + other.y) / 2 };
    if (distance(last) > 0) this.handler.zoom(distance(point) / distance(last), middle);
    this.handler.pan((point.x - last.x) / 2, (point.y - last.y) / 2);
  }

  private pointOf(event: MouseEvent): Point {
    const { left, top } = this.target.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }
}
