// Histograms over time: from a table's column of bin counts to the cells of a picture.
import type { Column, Json } from "../messages";
import type { Table } from "../tables/table_rows";

/** Bins over the rows that have a histogram; bins that are empty throughout are left out. */
export interface HistogramView {
  xLabel: string;
  x: number[]; // of each column of cells
  bounds: number[]; // where each column begins, and where the last one ends
  bins: Bin[]; // from the lowest to the highest
  counts: number[][]; // by column, then by bin
  totals: number[]; // values of each column
  largest: number; // share of a column's values in one bin
}

/** One shown bin. */
export interface Bin {
  low: number; // may be -Infinity
  high: number; // may be Infinity
  isGap: boolean; // stands for several empty ones
}

/** A tick of the value axis, `at` bins from the bottom. */
export interface BinTick {
  at: number;
  text: number;
}

const LONGEST_GAP = 2; // empty bins in a row that are shown one by one

/** The table's first column of histograms. */
export function histogramColumn({ head }: Table): Column | undefined {
  return head.columns.find(({ type, edges }) => type === "tensor" && edges.length > 0);
}

/** Build the picture; null if no row has a histogram. */
export function buildHistogram(table: Table): HistogramView | null {
  const column = histogramColumn(table);
  const cells = column && table.columns[column.name];
  if (!column || !cells) return null;
  const size = column.edges.length + 1;
  const rows = [...cells.keys()].filter((row) => isHistogram(cells[row], size));
  if (!rows.length) return null;
  const all = rows.map((row) => cells[row] as number[]);
  const shown = shownBins(all, size);
  if (!shown.length) return null; // of empty arrays
  const edges = [-Infinity, ...column.edges, Infinity];
  const bins = shown.map(([first, last]): Bin => ({ low: edges[first], high: edges[last + 1], isGap: last > first }));
  const counts = all.map((histogram) => shown.map(([first]) => histogram[first]));
  const totals = all.map((histogram) => histogram.reduce((sum, count) => sum + count, 0));
  const largest = Math.max(...counts.map((bins, index) => Math.max(...bins) / (totals[index] || 1)));
  const x = xOf(table, rows);
  return { xLabel: table.head.x || "row", x, bounds: boundsOf(x), bins, counts, totals, largest };
}

function isHistogram(cell: Json, size: number): boolean {
  return Array.isArray(cell) && cell.length === size && cell.every((count) => typeof count === "number");
}

// Ranges of bins, each drawn as one: from the first to the last that ever held a value, long empty stretches as one.
function shownBins(histograms: number[][], size: number): [number, number][] {
  const isUsed = Array.from({ length: size }, (_, bin) => histograms.some((histogram) => histogram[bin] > 0));
  const [first, last] = [isUsed.indexOf(true), isUsed.lastIndexOf(true)];
  const shown: [number, number][] = [];
  for (let bin = Math.max(0, first); bin <= last; bin++) {
    let end = bin;
    while (!isUsed[bin] && !isUsed[end + 1]) end++;
    if (end - bin >= LONGEST_GAP) shown.push([bin, end]);
    else for (let single = bin; single <= end; single++) shown.push([single, single]);
    bin = end;
  }
  return shown;
}

function xOf(table: Table, rows: number[]): number[] {
  const cells = table.columns[table.head.x] ?? [];
  const x = rows.map((row) => cells[row]);
  const isRising = x.every(
    (value, index) => typeof value === "number" && (index === 0 || value > (x[index - 1] as number)),
  );
  return isRising ? (x as number[]) : rows;
}

// A column reaches half way to its neighbours.
function boundsOf(x: number[]): number[] {
  const middles = x.slice(1).map((value, index) => (value + x[index]) / 2);
  const [head, tail] = middles.length
    ? [x[0] - (middles[0] - x[0]), 2 * x[x.length - 1] - middles[middles.length - 1]]
    : [x[0] - 0.5, x[0] + 0.5];
  return [head, ...middles, tail];
}

/** Ticks at the bins' limits, counted away from zero so that both sides have the same; about `count`. */
export function binTicks({ bins }: HistogramView, count: number): BinTick[] {
  const zero = bins.findIndex(({ low, high }) => low < 0 && high > 0);
  const stride = Math.max(1, Math.ceil(bins.length / Math.max(1, count)));
  const limits = bins.length ? [bins[0].low, ...bins.map(({ high }) => high)] : [];
  const origin = zero < 0 ? 0 : zero + 0.5;
  const ticks = limits.map((text, at): BinTick => ({ at, text }));
  const away = ({ at }: BinTick): number => (zero < 0 ? at : Math.ceil(Math.abs(at - origin))); // bins between a limit and zero
  const shown = ticks.filter(
    (tick) => Number.isFinite(tick.text) && away(tick) % stride === 0 && (zero < 0 || away(tick) > 0),
  );
  return [...shown, ...(zero < 0 ? [] : [{ at: origin, text: 0 }])].sort((a, b) => a.at - b.at);
}

/** Counts as rows: x, then a column for each bin, named by its lower limit. */
export function histogramRows({ xLabel, x, bins, counts }: HistogramView): { names: string[]; rows: number[][] } {
  const names = [xLabel, ...bins.map(({ low, high }) => `${low} to ${high}`)];
  return { names, rows: x.map((value, index) => [value, ...counts[index]]) };
}
