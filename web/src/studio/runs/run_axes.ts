// Parallel coordinates: where the values of runs stand on the axes of their columns.
import type { Json } from "../messages";
import { formatValue } from "../tables/value_format";
import type { RunRows } from "./run_list";

/** An axis: where each run stands, from 0 at the bottom to 1; null where it has no value. */
export interface RunAxis {
  name: string;
  places: (number | null)[]; // one for each row that was asked for
  ticks: { at: number; text: string }[];
}

const MOST_WORDS = 20; // different texts on an axis
const LOG_RATIO = 50; // from the least to the greatest, for a logarithmic axis

/** The axes of these columns: numbers by size, logarithmic over large ranges, texts in order; useless ones are left out. */
export function axesOf({ table }: RunRows, names: string[], rows: number[]): RunAxis[] {
  return names.flatMap((name) => {
    const cells = rows.map((row) => table.columns[name]?.[row] ?? null);
    const present = cells.filter((cell) => cell !== null && cell !== "" && !Number.isNaN(cell));
    if (new Set(present).size < 2) return [];
    return present.every((cell) => typeof cell === "number") ? numberAxis(name, cells) : wordAxis(name, cells);
  });
}

function numberAxis(name: string, cells: Json[]): RunAxis[] {
  const finite = cells.filter((cell): cell is number => typeof cell === "number" && Number.isFinite(cell));
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  if (!finite.length || low === high) return [];
  const isLog = low > 0 && high / low >= LOG_RATIO;
  const scale = isLog ? Math.log : (value: number): number => value;
  const place = (value: number): number => (scale(value) - scale(low)) / (scale(high) - scale(low));
  const middle = isLog ? Math.sqrt(low * high) : (low + high) / 2;
  return [
    {
      name,
      places: cells.map((cell) => (typeof cell === "number" && Number.isFinite(cell) ? place(cell) : null)),
      ticks: [low, middle, high].map((value) => ({ at: place(value), text: formatValue(value, 3) })),
    },
  ];
}

function wordAxis(name: string, cells: Json[]): RunAxis[] {
  const words = [
    ...new Set(cells.filter((cell) => cell !== null && cell !== "").map((cell) => formatValue(cell))),
  ].sort();
  if (words.length > MOST_WORDS) return [];
  const place = (word: string): number => words.indexOf(word) / Math.max(1, words.length - 1);
  return [
    {
      name,
      places: cells.map((cell) => (cell === null || cell === "" ? null : place(formatValue(cell)))),
      ticks: words.map((text) => ({ at: place(text), text })),
    },
  ];
}

/** The run whose line passes nearest to a point, at most `reach` away; -1 without one. `at` counts axes, `height` is from 0 to 1. */
export function nearestRun(axes: RunAxis[], at: number, height: number, reach: number): number {
  const left = Math.max(0, Math.min(axes.length - 2, Math.floor(at)));
  const share = Math.max(0, Math.min(1, at - left));
  let [nearest, distance] = [-1, reach];
  axes[left].places.forEach((from, run) => {
    const to = axes[left + 1].places[run];
    if (from === null || to === null) return;
    const gap = Math.abs(from + (to - from) * share - height);
    if (gap <= distance) [nearest, distance] = [run, gap];
  });
  return nearest;
}

/** The run that an arrow key leads to from another, by its place on the last axis; -1 for other keys. */
export function nextRun(axes: RunAxis[], run: number, key: string): number {
  const places = axes[axes.length - 1].places;
  const order = [...places.keys()].filter((each) => places[each] !== null);
  order.sort((a, b) => places[a]! - places[b]!);
  const [start, last] = [order.indexOf(run), order.length - 1];
  const target = { ArrowUp: start + 1, ArrowDown: start < 0 ? last : start - 1, Home: 0, End: last }[key];
  return target === undefined ? -1 : (order[Math.max(0, Math.min(last, target))] ?? -1);
}
