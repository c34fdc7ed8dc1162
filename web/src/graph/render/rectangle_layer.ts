// Plain rectangles on a canvas below the drawing, for more boxes than can be read.
import type { Camera } from "../input/camera";
import type { PlacedBox } from "../layout/placement";
import { element } from "./painter";

const MIN_BORDERED_PX = 6; // pixels high: smaller boxes get no border

export interface BoxRectangle {
  box: PlacedBox;
  template: SVGElement; // its outline as drawn in detail
  fill: string; // the overlay's colour, "" for none
}

export class RectangleLayer {
  readonly canvas = document.createElement("canvas");
  rectangles: BoxRectangle[] = [];
  private probe = element("g", { visibility: "hidden" });
  private styleCache = new Map<string, [fill: string, stroke: string]>();

  constructor(
    private readonly camera: Camera,
    svg: SVGElement,
  ) {
    this.canvas.className = "coarse";
    svg.append(this.probe);
  }

  /** Drop cached colours after a theme change. */
  clearStyles(): void {
    this.styleCache.clear();
  }

  draw(width: number, height: number): void {
    this.canvas.hidden = !this.rectangles.length;
    if (this.canvas.hidden) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    // "willReadFrequently" keeps the canvas off the graphics card: many small rectangles cost more to upload than to
    // fill
    const context = this.canvas.getContext("2d", { willReadFrequently: true })!;
    const { x, y, k } = this.camera;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    let currentFill = "";
    for (const { box, template, fill } of this.rectangles) {
      const [left, top] = [x + box.x * k, y + box.y * k];
      const [boxWidth, boxHeight] = [Math.max(0.7, box.view.box.width * k), Math.max(0.7, box.view.box.height * k)];
      if (left > width || top > height || left + boxWidth < 0 || top + boxHeight < 0) continue;
      const [background, border] = this.stylesOf(template);
      if (boxHeight < MIN_BORDERED_PX) {
        const colour = fill || border; // at this size only the border would be visible
        if (currentFill !== colour) context.fillStyle = currentFill = colour;
        context.fillRect(left, top, boxWidth, boxHeight);
      } else {
        context.fillStyle = currentFill = fill || background;
        context.strokeStyle = border;
        context.fillRect(left, top, boxWidth, boxHeight);
        context.strokeRect(left, top, boxWidth, boxHeight);
      }
    }
  }

  private stylesOf(template: SVGElement): [string, string] {
    const key = `${template.getAttribute("class")} ${template.getAttribute("fill")} ${template.getAttribute("stroke")}`;
    let style = this.styleCache.get(key);
    if (!style) {
      const sample = template.cloneNode() as SVGElement;
      this.probe.append(sample);
      const { fill, stroke } = getComputedStyle(sample);
      sample.remove();
      this.styleCache.set(key, (style = [fill, stroke]));
    }
    return style;
  }
}
