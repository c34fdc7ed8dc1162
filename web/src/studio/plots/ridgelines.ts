// Histograms over time as ridgelines: one outline for each step, the newest in front.
import { binTicks, type BinTick, type HistogramView } from "./histogram_view";

const MOST_RIDGES = 40;

/** One outline: points from the lowest bin to the highest, in the unit square of its ridge. */
export interface Ridge {
  x: number; // its step
  base: number; // where it stands, from 0 at the back to 1 in front
  heights: number[]; // of each bin, 1 is the largest share of all
}

/** The ridges that are drawn: all columns, or as many as can be told apart, with the first and the last. */
export function ridgesOf({ x, counts, totals, largest }: HistogramView): Ridge[] {
  const count = Math.min(MOST_RIDGES, x.length);
  const columns = Array.from({ length: count }, (_, ridge) =>
    count === 1 ? 0 : Math.round((ridge * (x.length - 1)) / (count - 1)),
  );
  return columns.map((column, ridge) => ({
    x: x[column],
    base: count === 1 ? 1 : ridge / (count - 1),
    heights: counts[column].map((bin) => bin / (totals[column] || 1) / (largest || 1)),
  }));
}

/** The outline as an SVG path within a box, closed at its base. */
export function ridgePath(heights: number[], width: number, base: number, tall: number): string {
  const step = width / Math.max(1, heights.length);
  const points = heights.map(
    (height, bin) => `${((bin + 0.5) * step).toFixed(1)} ${(base - height * tall).toFixed(1)}`,
  );
  return `M0 ${base.toFixed(1)}L${points.join("L")}L${width.toFixed(1)} ${base.toFixed(1)}Z`;
}

/** Ticks of the value axis, as shares of its width. */
export function ridgeTicks(view: HistogramView): BinTick[] {
  return binTicks(view, 8).map(({ at, text }) => ({ at: at / Math.max(1, view.bins.length), text }));
}
