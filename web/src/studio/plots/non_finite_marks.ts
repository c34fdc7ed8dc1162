// Points of a line that are not finite: at the edges of the plot, as they have no place in it.
import uPlot from "uplot";

import { strangeOf } from "../non_finite";
import { indices } from "./plot_view";

const SIZE = 4; // pixels from its middle to its corners

/** Mark them in the line's colour: a cross at the bottom for NaN, a triangle that points out of the plot for infinities. */
export function drawStrange(plot: uPlot, values: readonly (number | null | undefined)[], colour: string): void {
  const { ctx, bbox, scales } = plot;
  const x = plot.data[0] as number[];
  const [first, last] = indices(x, [scales.x.min ?? -Infinity, scales.x.max ?? Infinity]);
  const size = SIZE * uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 1.5 * uPlot.pxRatio;
  for (let index = first; index < last; index++) {
    const value = values[index];
    const kind = typeof value === "number" ? strangeOf(value) : null;
    if (!kind) continue;
    const at = plot.valToPos(x[index], "x", true);
    const edge = kind === "plus" ? bbox.top + size + 2 : bbox.top + bbox.height - size - 2;
    ctx.beginPath();
    if (kind === "nan") {
      for (const turn of [1, -1]) [ctx.moveTo(at - size, edge - turn * size), ctx.lineTo(at + size, edge + turn * size)];
      ctx.stroke();
    } else {
      const out = kind === "plus" ? -size : size;
      [ctx.moveTo(at - size, edge - out), ctx.lineTo(at + size, edge - out), ctx.lineTo(at, edge + out)];
      ctx.fill();
    }
  }
  ctx.restore();
}
