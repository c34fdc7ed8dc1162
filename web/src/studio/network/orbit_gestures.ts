// Pointer and wheel over the picture.
import type { Board } from "./presenter";
import { Scene } from "./scene/scene";

const CLICK = 5; // pixels that a click may wander

/** Listen; the answer ends it. */
export function listen(board: Board, host: HTMLElement): () => void {
  const gone = new AbortController();
  const on = <K extends keyof HTMLElementEventMap>(name: K, run: (event: HTMLElementEventMap[K]) => void): void =>
    host.addEventListener(name, run, { signal: gone.signal, passive: false });
  const pointers = new Pointers(board, host);
  on("pointerdown", (event) => pointers.down(event));
  on("pointermove", (event) => pointers.move(event));
  on("pointerup", (event) => pointers.up(event, true));
  on("pointercancel", (event) => pointers.up(event, false));
  on("pointerleave", () => pointers.leave());
  on("contextmenu", (event) => event.preventDefault());
  on("wheel", (event) => pointers.wheel(event));
  on("keydown", () => host.classList.remove("by-pointer"));
  return () => {
    pointers.leave();
    gone.abort();
  };
}

class Pointers {
  private readonly held = new Map<number, { x: number; y: number }>();
  private travelled = 0;
  private asked = 0;
  private last: { x: number; y: number } | null = null;

  constructor(
    private readonly board: Board,
    private readonly host: HTMLElement,
  ) {}

  down(event: PointerEvent): void {
    if (event.target instanceof Element && event.target.closest("button, a, input, select")) return;
    this.host.setPointerCapture(event.pointerId);
    this.host.focus({ preventScroll: true });
    this.host.classList.add("by-pointer"); // no ring around what somebody clicked
    if (!this.held.size) this.travelled = 0;
    this.held.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  move(event: PointerEvent): void {
    const before = this.held.get(event.pointerId);
    if (!before) return this.hover(event);
    const [right, down] = [event.clientX - before.x, event.clientY - before.y];
    this.travelled += Math.abs(right) + Math.abs(down);
    const spread = this.spread();
    this.held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (this.travelled < CLICK || !(this.board.scene instanceof Scene)) return;
    this.board.pointAt(null);
    const { scene } = this.board;
    scene.touch();
    if (this.held.size > 1) {
      if (spread) scene.zoom(spread / this.spread(), ...this.middle());
      scene.orbit.pan(right / this.held.size, down / this.held.size);
    } else if (event.buttons & 6 || event.shiftKey) scene.orbit.pan(right, down);
    else scene.orbit.turn(right, down);
  }

  up(event: PointerEvent, clicked: boolean): void {
    const only = this.held.size === 1 && this.held.has(event.pointerId);
    this.held.delete(event.pointerId);
    if (!clicked || !only || this.travelled >= CLICK || event.button !== 0) return;
    const { x, y } = this.spot(event);
    const picked = this.board.scene.at(x, y);
    this.board.select(picked && picked.unit >= 0 ? { layer: picked.layer, unit: picked.unit } : null);
  }

  leave(): void {
    cancelAnimationFrame(this.asked);
    this.asked = 0;
    this.last = null;
    this.board.pointAt(null);
  }

  wheel(event: WheelEvent): void {
    const { scene } = this.board;
    if (!(scene instanceof Scene)) return;
    event.preventDefault();
    const { x, y } = this.spot(event);
    const lines = event.deltaMode === 1 ? 16 : 1;
    scene.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * lines)) * 0.0015), x, y);
  }

  // Once per picture: finding what lies there takes a moment.
  private hover(event: PointerEvent): void {
    this.last = this.spot(event);
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      if (this.last) this.board.pointAt(this.last);
    });
  }

  private spot(event: MouseEvent): { x: number; y: number } {
    const { left, top } = this.host.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  private middle(): [number, number] {
    const { left, top } = this.host.getBoundingClientRect();
    const [one, other] = [...this.held.values()];
    return [(one.x + other.x) / 2 - left, (one.y + other.y) / 2 - top];
  }

  private spread(): number {
    const [one, other] = [...this.held.values()];
    return other ? Math.hypot(one.x - other.x, one.y - other.y) : 0;
  }
}
