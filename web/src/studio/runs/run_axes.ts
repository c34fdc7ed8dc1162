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
