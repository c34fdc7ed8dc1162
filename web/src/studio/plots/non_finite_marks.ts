// Marks for the non-finite points of a line, at the edges of the plot.
import uPlot from "uplot";

import { drawLine, nonFiniteKind } from "../non_finite";
import { indexRange } from "./plot_view";

const MARK_PX = 4; // pixels from a mark's centre to its corners

/** Draw the marks in the line's colour: a cross at the bottom for NaN, a triangle pointing out of the plot for
 * infinities. */
export function drawNonFinite(plot: uPlot, values: readonly (number | null | undefined)[], colour: string): void {
  const { ctx, bbox, scales } = plot;
  const x = plot.data[0] as number[];
  const [first, last] = indexRange(x, [scales.x.min ?? -Infinity, scales.x.max ?? Infinity]);
  const size = MARK_PX * uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 1.5 * uPlot.pxRatio;
  for (let index = first; index < last; index++) {
    const value = values[index];
    const kind = typeof value === "number" ? nonFiniteKind(value) : null;
    if (!kind) continue;
    const centre = plot.valToPos(x[index], "x", true);
    const edge = kind === "plus" ? bbox.top + size + 2 : bbox.top + bbox.height - size - 2;
    ctx.beginPath();
    if (kind === "nan") {
      for (const rise of [size, -size]) drawLine(ctx, centre - size, edge - rise, centre + size, edge + rise);
      ctx.stroke();
    } else {
      const tip = kind === "plus" ? -size : size;
      drawLine(ctx, centre - size, edge - tip, centre + size, edge - tip);
      ctx.lineTo(centre, edge + tip);
      ctx.fill();
    }
  }
  ctx.restore();
}
