// Error bars on the screen.
import uPlot from "uplot";

import type { Line } from "./plot_lines";
import { indexRange } from "./plot_view";

const CAP_ROOM = 10; // minimum pixels between points for bars with caps

/** Draw the error bars of a line; without caps if points are close together. */
export function drawErrorBars(plot: uPlot, line: Line, scale: string, colour: string): void {
  const { ctx, bbox, scales } = plot;
  const x = plot.data[0] as number[];
  const [first, last] = indexRange(x, [scales.x.min!, scales.x.max!]);
  const cap = bbox.width / Math.max(1, last - first) >= CAP_ROOM * uPlot.pxRatio ? 3 * uPlot.pxRatio : 0;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.beginPath();
  for (let index = first; index < last; index++) {
    const [value, error] = [line.values[index], line.error![index]];
    if (typeof value !== "number" || typeof error !== "number" || !error) continue;
    const centre = plot.valToPos(x[index], "x", true);
    const low =
      scales[scale].distr === (3 as uPlot.Scale.Distr) && value - error <= 0 ? scales[scale].min! : value - error;
    const [bottom, top] = [plot.valToPos(low, scale, true), plot.valToPos(value + error, scale, true)];
    ctx.moveTo(centre, bottom);
    ctx.lineTo(centre, top);
    for (const end of cap ? [bottom, top] : []) {
      ctx.moveTo(centre - cap, end);
      ctx.lineTo(centre + cap, end);
    }
  }
  ctx.strokeStyle = colour;
  ctx.globalAlpha = cap ? 0.8 : 0.35;
  ctx.lineWidth = uPlot.pxRatio;
  ctx.stroke();
  ctx.restore();
}
