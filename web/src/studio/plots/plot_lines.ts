// From a table to lines over one x axis: columns chosen, split by the legend column, smoothed.
import type { Column, Json } from "../messages";
import type { Table } from "../tables/table_rows";
import { plain } from "../tables/value_format";

export type Cells = (number | null | undefined)[]; // null: no value here; undefined: this line has no such x

/** What the reader chose. */
export interface Choices {
  x: string; // a column; "" counts the rows
  legend: string; // the column whose values make a line each; "": none
  error: string | null; // the column of all error bars; "": none; null: the one that each column names
  columns: string[];
  smoothing: number; // 0: none, towards 1: more
  logX: boolean;
  logY: boolean;
}

/** One line of a plot. */
export interface Line {
  label: string;
  column: string;
  number: number; // decides its colour
  values: Cells; // as drawn: smoothed
  raw: Cells | null; // behind it, where it was smoothed
  strange: Cells; // of what is not finite, which has no place in `values`
  error: Cells | null; // half the length of its error bars
}

/** All that a plot shows. */
export interface Lines {
  x: number[];
  xLabel: string;
  xWhole: boolean; // x counts something: 1, 2, 3
  lines: Line[];
  remarks: string[]; // what is not shown, and why
}

const MOST_GROUPS = 16;

/** Columns that can be drawn as a line. */
export function plottable(table: Table): Column[] {
  return table.head.columns.filter(({ name, type }) => (type === "int" || type === "float") && name !== table.head.x);
}

/** The lines of a table. */
export function linesOf(table: Table, choices: Choices): Lines {
  const remarks: string[] = [];
  const groups = groupsOf(table, choices.legend, remarks);
  let xName = choices.x;
  if (xName && groups.some((rows) => !isRising(table.columns[xName] ?? [], rows.rows))) {
    remarks.push(`${xName} does not only rise: rows are counted instead.`);
    xName = "";
  }
  const places = placesOf(table, groups, xName, choices.logX, remarks);
  const lines: Line[] = [];
  const shown = table.head.columns.filter(({ name }) => choices.columns.includes(name));
  for (const column of shown) {
    for (const group of groups) lines.push(lineOf(table, column, group, groups, places, choices, lines.length));
  }
  lines.forEach((line) => remarkStrange(line, remarks));
  if (choices.logY) hideNotPositive(lines, remarks);
  const xWhole = !xName || table.head.columns.some(({ name, type }) => name === xName && type === "int");
  return { x: places.x, xLabel: xName || "row", xWhole, lines, remarks };
}

interface Group {
  name: string; // "" where there is no legend
  rows: Uint32Array | null; // null: all of them, in order
}

function groupsOf(table: Table, column: string, remarks: string[]): Group[] {
  const legend = column && table.columns[column];
  if (!legend) return [{ name: "", rows: null }];
  const rows = new Map<string, number[]>();
  for (let row = 0; row < table.count; row++) {
    const name = plain(legend[row]);
    const members = rows.get(name);
    if (members) members.push(row);
    else rows.set(name, [row]);
  }
  const all = [...rows].map(([name, members]) => ({ name: `${column} ${name}`, rows: Uint32Array.from(members) }));
  if (all.length > MOST_GROUPS) remarks.push(`The last ${MOST_GROUPS} of ${all.length} values of ${column} are shown.`);
  return all.slice(-MOST_GROUPS);
}

function isRising(cells: Json[], rows: Uint32Array | null): boolean {
  const count = rows ? rows.length : cells.length;
  let last = -Infinity;
  for (let index = 0; index < count; index++) {
    const value = cells[rows ? rows[index] : index];
    if (typeof value !== "number" || !Number.isFinite(value) || value < last) return false;
    last = value;
  }
  return true;
}

interface Places {
  x: number[];
  of: (group: Group) => (index: number) => number; // where a group's row lies in x; -1: nowhere
}

function placesOf(table: Table, groups: Group[], xName: string, log: boolean, remarks: string[]): Places {
  const cells = xName ? (table.columns[xName] as number[]) : null;
  const value = (group: Group, index: number): number => (cells ? cells[group.rows ? group.rows[index] : index] : index + (log ? 1 : 0));
  const length = (group: Group): number => group.rows?.length ?? table.count;
  let lost = 0;
  const fits = (number: number): boolean => !log || number > 0;
  if (groups.length === 1) {
    const [only] = groups;
    const x: number[] = [];
    const where = new Int32Array(length(only));
    for (let index = 0; index < where.length; index++) {
      const number = value(only, index);
      where[index] = fits(number) ? x.push(number) - 1 : -1;
      if (where[index] < 0) lost++;
    }
    remarkLost(lost, "x", remarks);
    return { x, of: () => (index) => where[index] };
  }
  const all = new Set<number>();
  for (const group of groups) {
    for (let index = 0; index < length(group); index++) {
      const number = value(group, index);
      if (fits(number)) all.add(number);
      else lost++;
    }
  }
  remarkLost(lost, "x", remarks);
  const x = [...all].sort((a, b) => a - b);
  const index = new Map(x.map((number, at) => [number, at]));
  return { x, of: (group) => (at) => index.get(value(group, at)) ?? -1 };
}

function lineOf(table: Table, column: Column, group: Group, groups: Group[], places: Places, choices: Choices, number: number): Line {
  const place = places.of(group);
  const found = placed(table, column.name, group, place, places.x.length);
  const values = found.map((value) => (typeof value === "number" && !Number.isFinite(value) ? null : value));
  const names = [groups.length > 1 || group.name ? group.name : "", column.name].filter(Boolean);
  const errors = choices.error ?? column.error;
  const finite = (value: number | null | undefined): number | null | undefined => (Number.isFinite(value ?? 0) ? value : null);
  const error = errors && table.columns[errors] ? placed(table, errors, group, place, places.x.length).map(finite) : null;
  const smooth = choices.smoothing > 0 ? smoothed(values, choices.smoothing) : null;
  return {
    label: names.reverse().join(" · "), column: column.name, number,
    values: smooth ?? values, raw: smooth ? values : null, strange: found.map((value, at) => (values[at] === value ? undefined : value)), error,
  };
}

function placed(table: Table, name: string, group: Group, place: (index: number) => number, length: number): Cells {
  const cells = table.columns[name] ?? [];
  const count = group.rows?.length ?? table.count;
  const made: Cells = new Array(length).fill(undefined);
  for (let index = 0; index < count; index++) {
    const at = place(index);
    if (at < 0) continue;
    const value = cells[group.rows ? group.rows[index] : index];
    made[at] = typeof value === "number" ? value : null;
  }
  return made;
}

/** An exponential mean of what came before; its start is not drawn towards zero. Gaps stay gaps. */
export function smoothed(values: Cells, weight: number): Cells {
  let sum = 0;
  let whole = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    whole = weight * whole + (1 - weight);
    return sum / whole;
  });
}

function hideNotPositive(lines: Line[], remarks: string[]): void {
  let lost = 0;
  const positive = (value: number | null | undefined): number | null | undefined => {
    if (typeof value !== "number" || value > 0) return value;
    lost++;
    return null;
  };
  for (const line of lines) {
    line.values = line.values.map(positive);
    const before = lost;
    line.raw = line.raw && line.raw.map(positive);
    lost = before; // the same points, behind
  }
  remarkLost(lost, "y", remarks);
}

function remarkStrange({ label, strange }: Line, remarks: string[]): void {
  const found = strange.filter((value) => typeof value === "number");
  if (!found.length) return;
  const names = [...new Set(found.map((value) => plain(value ?? null)))].join(" or ");
  remarks.push(`${label} is ${names} at ${found.length} ${found.length === 1 ? "point" : "points"}, marked at the edge.`);
}

function remarkLost(lost: number, axis: string, remarks: string[]): void {
  if (!lost) return;
  const points = lost === 1 ? "1 point is" : `${lost} points are`;
  remarks.push(`${points} not above zero: a logarithmic ${axis} axis has no place for that.`);
}
