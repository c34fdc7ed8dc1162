// The rows of a table that are shown, and their order.
import type { Json } from "../messages";
import type { Table } from "./table_rows";
import { formatValue } from "./value_format";

/** A column to sort by; null keeps the original order. */
export interface Sort {
  column: string;
  down: boolean;
}

type RowTest = (row: number) => boolean;
const COMPARISONS: Record<string, (a: number, b: number) => boolean> = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "=": (a, b) => a === b,
};

/** Row indices, filtered and sorted. */
export function orderRows(table: Table, filter: string, sort: Sort | null): Uint32Array {
  const tests = parseFilter(table, filter);
  let rows = new Uint32Array(table.count);
  let count = 0;
  for (let row = 0; row < table.count; row++) if (tests.every((test) => test(row))) rows[count++] = row;
  rows = rows.slice(0, count);
  const cells = sort && table.columns[sort.column];
  return cells ? sortRows(rows, cells, sort.down) : rows;
}

/** The sort after a header click: ascending, descending, original order. */
export function nextSort(current: Sort | null, column: string): Sort | null {
  if (current?.column !== column) return { column, down: false };
  return current.down ? null : { column, down: true };
}

// "loss<0.5" compares a column; all other words together must occur in some cell.
function parseFilter(table: Table, filter: string): RowTest[] {
  const names = table.head.columns.map(({ name }) => name);
  const tests: RowTest[] = [];
  const words = filter.split(/\s+/).filter((word) => {
    const [, name, sign, limit] = /^(.+?)(<=|>=|<|>|=)(-?[\d.]+(?:e[+-]?\d+)?)$/i.exec(word) ?? [];
    const column = name && names.find((candidate) => candidate.toLowerCase() === name.toLowerCase());
    if (column) tests.push((row) => compare(table.columns[column]?.[row], sign, Number(limit)));
    return word && !column;
  });
  const phrase = words.join(" ").toLowerCase();
  if (phrase) tests.push((row) => names.some((candidate) => contains(table.columns[candidate]?.[row], phrase)));
  return tests;
}

function compare(cell: Json | undefined, sign: string, limit: number): boolean {
  return typeof cell === "number" && COMPARISONS[sign](cell, limit);
}

function contains(cell: Json | undefined, word: string): boolean {
  return typeof cell !== "object" && formatValue(cell).toLowerCase().includes(word);
}

// Missing values come last in either direction, and NaN before them; the sort is stable.
function sortRows(rows: Uint32Array, cells: Json[], down: boolean): Uint32Array {
  const sign = down ? -1 : 1;
  const numeric = rows.every((row) => typeof cells[row] === "number" || cells[row] === null);
  const texts = new Intl.Collator(undefined, { numeric: true });
  const key = (row: number): number => (typeof cells[row] === "number" ? cells[row] : sign * Infinity);
  const missing = (row: number): number => Number(cells[row] === null || cells[row] === undefined);
  const rank = (row: number): number => (missing(row) ? 2 : Number(Number.isNaN(cells[row])));
  const byNumber = (a: number, b: number): number => {
    const [first, second] = [key(a), key(b)];
    if (rank(a) || rank(b)) return rank(a) - rank(b) || a - b;
    return first === second ? a - b : sign * (first < second ? -1 : 1);
  };
  const byText = (a: number, b: number): number =>
    missing(a) - missing(b) || sign * texts.compare(formatValue(cells[a]), formatValue(cells[b])) || a - b;
  return rows.sort(numeric ? byNumber : byText);
}
