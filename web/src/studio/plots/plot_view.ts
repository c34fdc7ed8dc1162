// What part of the lines is seen: the ranges of the axes, automatic or zoomed.
import type { Column } from "../messages";
import type { Line, Lines } from "./plot_lines";
import { airy } from "./axis_ticks";

export type Range = [number, number];

/** The reader's zoom; null: automatic. */
export interface Zoom {
  x: Range | null;
  y: Record<string, Range> | null; // by scale
}

/** The ends of axes that were typed, by the axis' name: "x", "y" for all columns, "y " and a column; null: automatic. */
export type Limits = ReadonlyMap<string, readonly [number | null, number | null]>;

/** How the lines are looked at. */
export interface Seen {
  logX: boolean;
  logY: boolean;
  apart: boolean; // each column has a y axis of its own
  limits: Limits;
}

/** Lines with their axes: the plot on the screen and the SVG are both drawn from this. */
export interface View extends Lines {
  logX: boolean;
  logY: boolean;
  xRange: Range;
  scales: Scale[];
}

/** A y axis: all columns share one, or each has its own. */
export interface Scale {
  key: string;
  label: string;
  columns: string[];
  range: Range;
}

const FEW = 200;
const AIR = 0.015;

export const WHOLE: Zoom = { x: null, y: null };

/** Find the ranges. */
export function viewOf(lines: Lines, columns: Column[], { logX, logY, apart, limits }: Seen, zoom: Zoom): View {
  const { x } = lines;
  const xRange = zoom.x ?? limited(xAiry(x, logX), limits.get("x"), logX);
  const names = [...new Set(lines.lines.map(({ column }) => column))];
  const sets = apart ? names.map((name) => [name]) : [names];
  const scales = sets.map((members, index): Scale => {
    const key = `y${index}`;
    const limit = limits.get(apart ? `y ${members[0]}` : "y");
    const range = zoom.y?.[key] ?? limited(yRange(lines, members, columns, xRange, logY), limit, logY);
    return { key, label: members.length === 1 ? members[0] : "", columns: members, range };
  });
  return { ...lines, logX, logY, xRange, scales };
}

/** A range whose ends are where they were typed; where the other end is on the wrong side of one, it is as far away as it was. */
export function limited([low, high]: Range, limit: readonly [number | null, number | null] | undefined, log: boolean): Range {
  const [least, most] = (limit ?? []).map((end) => (end !== null && log && end <= 0 ? null : end));
  if (typeof least === "number" && typeof most === "number") return least < most ? [least, most] : [low, high];
  const away = (from: number, sign: number): number => (log ? from * (high / low) ** sign : from + sign * (high - low));
  if (typeof least === "number") return [least, high > least ? high : away(least, 1)];
  if (typeof most === "number") return [low < most ? low : away(most, -1), most];
  return [low, high];
}

// Long lines go from edge to edge; where points are seen, the first and the last have some air.
function xAiry(x: number[], log: boolean): Range {
  const [first, last] = [x[0], x[x.length - 1]];
  if (x.length <= 1 || last === first) return airy(first ?? NaN, last ?? NaN, log);
  if (x.length > FEW) return [first, last];
  if (log) return [first / (last / first) ** AIR, last * (last / first) ** AIR];
  return [first - (last - first) * AIR, last + (last - first) * AIR];
}

function yRange(lines: Lines, members: string[], columns: Column[], xRange: Range, log: boolean): Range {
  let lowest = Infinity;
  let highest = -Infinity;
  const [first, last] = indices(lines.x, xRange);
  for (const line of lines.lines) {
    if (!members.includes(line.column)) continue;
    [lowest, highest] = extent(line, first, last, log, lowest, highest);
  }
  const fixed = columns.filter(({ name, fixed }) => fixed && members.includes(name)).map((column) => column.fixed!);
  const usable = fixed.filter(([low]) => !log || low > 0);
  if (usable.length && usable.length === members.length) {
    return [Math.min(...usable.map(([low]) => low)), Math.max(...usable.map(([, high]) => high))];
  }
  return airy(lowest, highest, log);
}

function extent(line: Line, first: number, last: number, log: boolean, lowest: number, highest: number): Range {
  const seen = line.raw ?? line.values;
  for (let index = first; index < last; index++) {
    const value = seen[index];
    if (typeof value !== "number") continue;
    const error = line.error?.[index] ?? 0;
    const low = log && value - error <= 0 ? value : value - error;
    if (low < lowest) lowest = low;
    if (value + error > highest) highest = value + error;
  }
  return [lowest, highest];
}

/** The first index inside a range of x, and the one after the last. */
export function indices(x: number[], [low, high]: Range): [number, number] {
  return [search(x, (value) => value >= low), search(x, (value) => value > high)];
}

function search(x: number[], passed: (value: number) => boolean): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (passed(x[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Zoom by a factor around the middle, along x; `by` moves it by a part of its width. */
export function zoomedX(view: View, factor: number, by = 0): Range {
  const to = (value: number): number => (view.logX ? Math.log(value) : value);
  const back = (value: number): number => (view.logX ? Math.exp(value) : value);
  const [low, high] = view.xRange.map(to);
  const middle = (low + high) / 2 + by * (high - low);
  const half = ((high - low) / 2) * factor;
  const made: Range = [back(middle - half), back(middle + half)];
  return isSensible(made, view) ? made : view.xRange;
}

// Not so near that numbers run out of digits, nor so far that the lines are a dot.
function isSensible([low, high]: Range, { x, logX }: View): boolean {
  const [first, last] = [x[0] ?? 0, x[x.length - 1] ?? 1];
  if (!Number.isFinite(low) || !Number.isFinite(high) || (logX && low <= 0)) return false;
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return false;
  if (logX) return Math.log(high / low) <= 20 * (Math.log(last / first) || 1);
  return high - low <= 20 * (last - first || Math.abs(first) || 1);
}
