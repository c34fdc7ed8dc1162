// So many boxes that nobody can read them: plain rectangles on a canvas below the drawing.
import type { Camera } from "../input/camera";
import type { Placed } from "../layout/placement";
import { element } from "./painter";

const LINED = 6; // pixels high: smaller boxes get no border

export interface Spot {
  box: Placed;
  like: SVGElement; // its outline, where it is drawn in full
  fill: string; // an overlay's
}

export class Coarse {
  readonly canvas = document.createElement("canvas");
  spots: Spot[] = [];
  private probe = element("g", { visibility: "hidden" });
  private known = new Map<string, [fill: string, stroke: string]>();

  constructor(
    private readonly camera: Camera,
    svg: SVGElement,
  ) {
    this.canvas.className = "coarse";
    svg.append(this.probe);
  }

  /** Other colours: ask for them anew. */
  forget(): void {
    this.known.clear();
  }

  draw(width: number, height: number): void {
    this.canvas.hidden = !this.spots.length;
    if (this.canvas.hidden) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    // "willReadFrequently" keeps it off the graphics card: many small rectangles cost more to send there than to fill
    const pen = this.canvas.getContext("2d", { willReadFrequently: true })!;
    const { x, y, k } = this.camera;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    let now = "";
    for (const { box, like, fill } of this.spots) {
      const [left, top] = [x + box.x * k, y + box.y * k];
      const [wide, high] = [Math.max(0.7, box.view.box.width * k), Math.max(0.7, box.view.box.height * k)];
      if (left > width || top > height || left + wide < 0 || top + high < 0) continue;
      const [inside, line] = this.colours(like);
      if (high < LINED) {
        const colour = fill || line; // the border is all that would be seen
        if (now !== colour) pen.fillStyle = now = colour;
        pen.fillRect(left, top, wide, high);
      } else {
        pen.fillStyle = now = fill || inside;
        pen.strokeStyle = line;
        pen.fillRect(left, top, wide, high);
        pen.strokeRect(left, top, wide, high);
      }
    }
  }

  private colours(like: SVGElement): [string, string] {
    const key = `${like.getAttribute("class")} ${like.getAttribute("fill")} ${like.getAttribute("stroke")}`;
    let found = this.known.get(key);
    if (!found) {
      const sample = like.cloneNode() as SVGElement;
      this.probe.append(sample);
      const { fill, stroke } = getComputedStyle(sample);
      sample.remove();
      this.known.set(key, (found = [fill, stroke]));
    }
    return found;
  }
}
