// The visible part of the lines: axis ranges, automatic or zoomed.
import type { Column } from "../messages";
import type { Line, PlotLines } from "./plot_lines";
import { padRange } from "./axis_ticks";

export type Range = [number, number];

/** The user's zoom; null: automatic. */
export interface Zoom {
  x: Range | null;
  y: Record<string, Range> | null; // by scale
}

/** Axis limits entered by the user, by axis: "x", "y" for all columns, "y <column>"; null: automatic. */
export type Limits = ReadonlyMap<string, readonly [number | null, number | null]>;

/** How the lines are viewed. */
export interface ViewOptions {
  logX: boolean;
  logY: boolean;
  separateAxes: boolean; // each column has its own y axis
  limits: Limits;
}

/** Lines with their axes; both the plot and its SVG export are drawn from this. */
export interface PlotView extends PlotLines {
  logX: boolean;
  logY: boolean;
  xRange: Range;
  scales: Scale[];
}

/** A y axis, shared by all columns or one per column. */
export interface Scale {
  key: string;
  label: string;
  columns: string[];
  range: Range;
}

const FEW_POINTS = 200;
const X_PADDING = 0.015;

export const FULL_ZOOM: Zoom = { x: null, y: null };

/** Compute the axis ranges of the lines. */
export function buildView(
  lines: PlotLines,
  columns: Column[],
  { logX, logY, separateAxes, limits }: ViewOptions,
  zoom: Zoom,
): PlotView {
  const { x } = lines;
  const xRange = zoom.x ?? applyLimits(paddedX(x, logX), limits.get("x"), logX);
  const names = [...new Set(lines.lines.map(({ column }) => column))];
  const columnSets = separateAxes ? names.map((name) => [name]) : [names];
  const scales = columnSets.map((members, index): Scale => {
    const key = `y${index}`;
    const limit = limits.get(separateAxes ? `y ${members[0]}` : "y");
    const range = zoom.y?.[key] ?? applyLimits(yRange(lines, members, columns, xRange, logY), limit, logY);
    return { key, label: members.length === 1 ? members[0] : "", columns: members, range };
  });
  return { ...lines, logX, logY, xRange, scales };
}

/** Apply limits to a range; if one limit passes the other end, that end moves along and the width is kept. */
export function applyLimits(
  [low, high]: Range,
  limit: readonly [number | null, number | null] | undefined,
  log: boolean,
): Range {
  const [minimum, maximum] = (limit ?? []).map((end) => (end !== null && log && end <= 0 ? null : end));
  if (typeof minimum === "number" && typeof maximum === "number")
    return minimum < maximum ? [minimum, maximum] : [low, high];
  const shifted = (from: number, sign: number): number =>
    log ? from * (high / low) ** sign : from + sign * (high - low);
  if (typeof minimum === "number") return [minimum, high > minimum ? high : shifted(minimum, 1)];
  if (typeof maximum === "number") return [low < maximum ? low : shifted(maximum, -1), maximum];
  return [low, high];
}

// Long lines go from edge to edge; if single points are visible, the first and last get padding.
function paddedX(x: number[], log: boolean): Range {
  const [first, last] = [x[0], x[x.length - 1]];
  if (x.length <= 1 || last === first) return padRange(first ?? NaN, last ?? NaN, log);
  if (x.length > FEW_POINTS) return [first, last];
  if (log) return [first / (last / first) ** X_PADDING, last * (last / first) ** X_PADDING];
  return [first - (last - first) * X_PADDING, last + (last - first) * X_PADDING];
}

function yRange(lines: PlotLines, members: string[], columns: Column[], xRange: Range, log: boolean): Range {
  let lowest = Infinity;
  let highest = -Infinity;
  const [first, last] = indexRange(lines.x, xRange);
  for (const line of lines.lines) {
    if (!members.includes(line.column)) continue;
    [lowest, highest] = extent(line, first, last, log, lowest, highest);
  }
  const automatic = padRange(lowest, highest, log);
  const ranges = members.map((name) => fixedRange(columns.find((column) => column.name === name)));
  if (!ranges.length || (log && ranges.some(([low]) => low <= 0 && low !== -Infinity))) return automatic;
  const [low, high] = [Math.min(...ranges.map(([end]) => end)), Math.max(...ranges.map(([, end]) => end))];
  const range: Range = [low === -Infinity ? automatic[0] : low, high === Infinity ? automatic[1] : high];
  return range[0] < range[1] ? range : automatic;
}

// The ends of a column's axis; an infinite one, which JSON has as text, is automatic.
function fixedRange(column: Column | undefined): Range {
  const [low, high] = column?.fixed ?? [-Infinity, Infinity];
  return [Number(low), Number(high)];
}

function extent(line: Line, first: number, last: number, log: boolean, lowest: number, highest: number): Range {
  const values = line.raw ?? line.values;
  for (let index = first; index < last; index++) {
    const value = values[index];
    if (typeof value !== "number") continue;
    const error = line.error?.[index] ?? 0;
    const low = log && value - error <= 0 ? value : value - error;
    if (low < lowest) lowest = low;
    if (value + error > highest) highest = value + error;
  }
  return [lowest, highest];
}

/** The first index inside a range of x, and the one after the last. */
export function indexRange(x: number[], [low, high]: Range): [number, number] {
  return [bisect(x, (value) => value >= low), bisect(x, (value) => value > high)];
}

function bisect(x: number[], isPast: (value: number) => boolean): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isPast(x[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Zoom x around its middle by a factor; `shift` moves it by a fraction of its width. */
export function zoomX(view: PlotView, factor: number, shift = 0): Range {
  const toAxis = (value: number): number => (view.logX ? Math.log(value) : value);
  const fromAxis = (value: number): number => (view.logX ? Math.exp(value) : value);
  const [low, high] = view.xRange.map(toAxis);
  const middle = (low + high) / 2 + shift * (high - low);
  const half = ((high - low) / 2) * factor;
  const zoomed: Range = [fromAxis(middle - half), fromAxis(middle + half)];
  return isUsableRange(zoomed, view) ? zoomed : view.xRange;
}

// Neither beyond the precision of numbers nor so far out that the lines are a dot.
function isUsableRange([low, high]: Range, { x, logX }: PlotView): boolean {
  const [first, last] = [x[0] ?? 0, x[x.length - 1] ?? 1];
  if (!Number.isFinite(low) || !Number.isFinite(high) || (logX && low <= 0)) return false;
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return false;
  if (logX) return Math.log(high / low) <= 20 * (Math.log(last / first) || 1);
  return high - low <= 20 * (last - first || Math.abs(first) || 1);
}
