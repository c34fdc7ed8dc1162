// The 2D camera: world (0, 0) is drawn at screen (x, y), scaled by k.
import { Flight } from "../../camera/flight";
import type { Rect } from "../layout/rect";

const [MIN_SCALE, MAX_SCALE] = [0.005, 6];
const MAX_FIT_SCALE = 1.25; // a small drawing is not enlarged further than this

export class Camera {
  x = 0;
  y = 0;
  k = 1;
  private readonly flight = new Flight<{ x: number; y: number; k: number }>(({ x, y, k }) => this.show(x, y, k));

  constructor(
    private readonly onChange: () => void,
    private readonly screen: () => { width: number; height: number },
  ) {}

  /** The visible area, in world coordinates. */
  view(): Rect {
    const { width, height } = this.screen();
    return { x: -this.x / this.k, y: -this.y / this.k, width: width / this.k, height: height / this.k };
  }

  toWorld(left: number, top: number): [number, number] {
    return [(left - this.x) / this.k, (top - this.y) / this.k];
  }

  set(x: number, y: number, k: number): void {
    this.flight.cancel();
    this.show(x, y, k);
  }

  pan(right: number, down: number): void {
    this.set(this.x + right, this.y + down, this.k);
  }

  /** Centre a world point. */
  centreOn(x: number, y: number): void {
    const { width, height } = this.screen();
    this.set(width / 2 - x * this.k, height / 2 - y * this.k, this.k);
  }

  /** Zoom by a factor; the given screen point stays fixed. */
  zoom(factor: number, left?: number, top?: number): void {
    const { width, height } = this.screen();
    const [px, py] = [left ?? width / 2, top ?? height / 2];
    const k = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.k * factor));
    this.set(px - ((px - this.x) * k) / this.k, py - ((py - this.y) * k) / this.k, k);
  }

  /** Fit a box into the screen. */
  fit(box: Rect, animate: boolean): void {
    const { width, height } = this.screen();
    const margin = Math.min(24, width / 16);
    const k = Math.min(
      MAX_FIT_SCALE,
      (width - 2 * margin) / (box.width || 1),
      (height - 2 * margin) / (box.height || 1),
    );
    const scale = Math.max(MIN_SCALE, k);
    const [x, y] = [width / 2 - (box.x + box.width / 2) * scale, height / 2 - (box.y + box.height / 2) * scale];
    this.moveTo(x, y, scale, animate);
  }

  /** Fit a tall box to the screen's width and show its start. */
  fitWidth(box: Rect): void {
    const { width } = this.screen();
    const k = Math.min(1, (width - 24) / (box.width || 1));
    this.set((width - box.width * k) / 2 - box.x * k, 12 - box.y * k, k);
  }

  /** Centre a box, large enough to read. */
  centre(box: Rect): void {
    const { width, height } = this.screen();
    const fitScale = Math.min((width - 40) / box.width, (height - 40) / box.height);
    const k = Math.min(Math.max(this.k, 0.8), Math.max(fitScale, 0.3), 2.5);
    this.moveTo(width / 2 - (box.x + box.width / 2) * k, height / 2 - (box.y + box.height / 2) * k, k, true);
  }

  private moveTo(x: number, y: number, k: number, animate: boolean): void {
    this.flight.start({ x: this.x, y: this.y, k: this.k }, { x, y, k }, animate);
  }

  private show(x: number, y: number, k: number): void {
    [this.x, this.y, this.k] = [x, y, Math.min(MAX_SCALE, Math.max(MIN_SCALE, k))];
    this.onChange();
  }
}
