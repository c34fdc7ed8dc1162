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
  const tests = testsOf(table, filter);
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

/** A filter in its parts: comparisons of columns, a regular expression, and words that must occur together. */
export interface Filter {
  conditions: { columns: string[]; sign: string; text: string }[];
  pattern: RegExp | null; // of "/…/", for the first column of text
  phrase: string;
}

const CONDITION = /^(.+?)(<=|>=|!=|<|>|=|~|:)(.+)$/;

/** Parse a filter: `loss<0.5`, `optimizer=adam`, `tag:baseline`, `name~^seed`, `/^seed/`, words. */
export function parseFilter(names: string[], filter: string): Filter {
  const parsed: Filter = { conditions: [], pattern: null, phrase: "" };
  const words = (filter.match(/\/(?:\\.|[^/])+\/|\S+/g) ?? []).filter((word) => {
    const isPattern = word.length > 2 && word.startsWith("/") && word.endsWith("/");
    if (isPattern) parsed.pattern = toPattern(word.slice(1, -1));
    const [, name, sign, text] = CONDITION.exec(word) ?? [];
    const columns = name ? columnsNamed(names, name) : [];
    const isUsable = columns.length > 0 && (!/[<>]/.test(sign) || !Number.isNaN(Number(text)));
    if (isUsable) parsed.conditions.push({ columns, sign, text });
    return !isUsable && !isPattern;
  });
  parsed.phrase = words.join(" ").toLowerCase();
  return parsed;
}

/** The columns that people mean by a name: that one, the plural of it, or those whose path ends in it. */
export function columnsNamed(names: string[], name: string): string[] {
  const wanted = name.toLowerCase();
  const exact = names.filter((candidate) => [wanted, `${wanted}s`].includes(candidate.toLowerCase()));
  return exact.length ? exact : names.filter((candidate) => candidate.toLowerCase().endsWith(`.${wanted}`));
}

function testsOf(table: Table, filter: string): RowTest[] {
  const names = table.head.columns.map(({ name }) => name);
  const { conditions, pattern, phrase } = parseFilter(names, filter);
  const tests = conditions.map(({ columns, sign, text }): RowTest => {
    const fits = conditionOf(sign, text);
    return (row) => columns.some((column) => fits(table.columns[column]?.[row] ?? null));
  });
  const named = table.head.columns.find(({ type }) => type === "text")?.name ?? "";
  if (pattern) tests.push((row) => pattern.test(formatValue(table.columns[named]?.[row])));
  if (phrase) tests.push((row) => names.some((candidate) => contains(table.columns[candidate]?.[row], phrase)));
  return tests;
}

// A comparison with one value; words are whole words, as tags are.
function conditionOf(sign: string, text: string): (cell: Json) => boolean {
  const limit = Number(text);
  const wanted = text.toLowerCase();
  if (COMPARISONS[sign] && sign !== "=") return (cell) => typeof cell === "number" && COMPARISONS[sign](cell, limit);
  const shown = (cell: Json): string => formatValue(cell).toLowerCase();
  const isEqual = (cell: Json): boolean => (typeof cell === "number" ? cell === limit : shown(cell) === wanted);
  if (sign === "=") return isEqual;
  if (sign === "!=") return (cell) => cell !== null && !isEqual(cell);
  if (sign === ":")
    return (cell) =>
      shown(cell)
        .split(/[\s,]+/)
        .includes(wanted) || shown(cell) === wanted;
  const pattern = toPattern(text);
  return (cell) => pattern.test(formatValue(cell));
}

// While a person types, a pattern is often not finished: then it is taken as it stands.
function toPattern(text: string): RegExp {
  try {
    return new RegExp(text, "i");
  } catch {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
  }
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
