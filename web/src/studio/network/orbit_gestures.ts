// Pointer and wheel gestures over the 3D view.
import type { NetworkPresenter } from "./presenter";
import { Scene } from "./scene/scene";

const CLICK_SLOP_PX = 5; // pixels a click may move

/** Attach the listeners; returns a function that removes them. */
export function attachOrbitGestures(presenter: NetworkPresenter, host: HTMLElement): () => void {
  const abort = new AbortController();
  const on = <K extends keyof HTMLElementEventMap>(name: K, run: (event: HTMLElementEventMap[K]) => void): void =>
    host.addEventListener(name, run, { signal: abort.signal, passive: false });
  const tracker = new PointerTracker(presenter, host);
  on("pointerdown", (event) => tracker.down(event));
  on("pointermove", (event) => tracker.move(event));
  on("pointerup", (event) => tracker.up(event, true));
  on("pointercancel", (event) => tracker.up(event, false));
  on("pointerleave", () => tracker.leave());
  on("contextmenu", (event) => event.preventDefault());
  on("wheel", (event) => tracker.wheel(event));
  on("keydown", () => host.classList.remove("by-pointer"));
  return () => {
    tracker.leave();
    abort.abort();
  };
}

class PointerTracker {
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private travelled = 0;
  private frameRequest = 0;
  private last: { x: number; y: number } | null = null;

  constructor(
    private readonly presenter: NetworkPresenter,
    private readonly host: HTMLElement,
  ) {}

  down(event: PointerEvent): void {
    if (event.target instanceof Element && event.target.closest("button, a, input, select, .network-label")) return;
    this.host.setPointerCapture(event.pointerId);
    this.host.focus({ preventScroll: true });
    this.host.classList.add("by-pointer"); // no focus ring after a click
    if (!this.pointers.size) this.travelled = 0;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  move(event: PointerEvent): void {
    const last = this.pointers.get(event.pointerId);
    if (!last) return this.hover(event);
    const [right, down] = [event.clientX - last.x, event.clientY - last.y];
    this.travelled += Math.abs(right) + Math.abs(down);
    const pinchDistance = this.pinchDistance();
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (this.travelled < CLICK_SLOP_PX || !(this.presenter.scene instanceof Scene)) return;
    this.presenter.hoverAt(null);
    const { scene } = this.presenter;
    scene.markTouched();
    if (this.pointers.size > 1) {
      if (pinchDistance) scene.zoom(pinchDistance / this.pinchDistance(), ...this.pinchCentre());
      scene.orbit.pan(right / this.pointers.size, down / this.pointers.size);
    } else if (event.buttons & 6 || event.shiftKey) scene.orbit.pan(right, down);
    else scene.orbit.turn(right, down);
  }

  up(event: PointerEvent, isClick: boolean): void {
    const isLast = this.pointers.size === 1 && this.pointers.has(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!isClick || !isLast || this.travelled >= CLICK_SLOP_PX || event.button !== 0) return;
    const { x, y } = this.localPoint(event);
    const picked = this.presenter.scene.pickAt(x, y);
    if (picked && this.presenter.open(picked.layer)) return;
    this.presenter.select(picked && picked.unit >= 0 ? { layer: picked.layer, unit: picked.unit } : null);
  }

  leave(): void {
    cancelAnimationFrame(this.frameRequest);
    this.frameRequest = 0;
    this.last = null;
    this.presenter.hoverAt(null);
  }

  wheel(event: WheelEvent): void {
    const { scene } = this.presenter;
    if (!(scene instanceof Scene)) return;
    event.preventDefault();
    const { x, y } = this.localPoint(event);
    const lines = event.deltaMode === 1 ? 16 : 1;
    scene.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * lines)) * 0.0015), x, y);
  }

  // At most once per animation frame: picking takes a moment.
  private hover(event: PointerEvent): void {
    this.last = this.localPoint(event);
    this.frameRequest ||= requestAnimationFrame(() => {
      this.frameRequest = 0;
      if (this.last) this.presenter.hoverAt(this.last);
    });
  }

  private localPoint(event: MouseEvent): { x: number; y: number } {
    const { left, top } = this.host.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  private pinchCentre(): [number, number] {
    const { left, top } = this.host.getBoundingClientRect();
    const [first, second] = [...this.pointers.values()];
    return [(first.x + second.x) / 2 - left, (first.y + second.y) / 2 - top];
  }

  private pinchDistance(): number {
    const [first, second] = [...this.pointers.values()];
    return second ? Math.hypot(first.x - second.x, first.y - second.y) : 0;
  }
}
