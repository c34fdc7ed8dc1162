// From a table to lines over one x axis: selected columns, split by the legend column, smoothed.
import type { Column, Json } from "../messages";
import type { Table } from "../tables/table_rows";
import { formatValue } from "../tables/value_format";

export type Cells = (number | null | undefined)[]; // null: no value here; undefined: this line has no such x

/** The choices that determine the lines. */
export interface LineChoices {
  x: string; // a column; "" counts rows
  legend: string; // the column whose values get a line each; "": none
  error: string | null; // the error-bar column of all lines; "": none; null: the one that each column names
  columns: string[];
  smoothing: number; // 0: none; towards 1: more
  logX: boolean;
  logY: boolean;
}

/** One line of a plot. */
export interface Line {
  label: string;
  column: string;
  group: string; // the value of the legend column; "" without one
  number: number; // determines its colour
  isMarked?: boolean; // of the selected layer or run
  values: Cells; // as drawn, smoothed
  raw: Cells | null; // the raw values behind a smoothed line
  nonFinite: Cells; // the non-finite values, which are null in `values`
  error: Cells | null; // half the length of its error bars
}

/** All lines of a plot. */
export interface PlotLines {
  x: number[];
  xLabel: string;
  xIsInteger: boolean; // x counts something: 1, 2, 3
  lines: Line[];
  remarks: string[]; // what is left out, and why
}

const MAX_GROUPS = 16;

/** Columns that can be drawn as a line. */
export function plottable(table: Table): Column[] {
  return table.head.columns.filter(({ name, type }) => (type === "int" || type === "float") && name !== table.head.x);
}

/** Build the lines of a table. */
export function buildLines(table: Table, choices: LineChoices): PlotLines {
  const remarks: string[] = [];
  const groups = groupsOf(table, choices.legend, remarks);
  let xName = choices.x;
  if (xName && groups.some((rows) => !isRising(table.columns[xName] ?? [], rows.rows))) {
    remarks.push(`${xName} does not only rise: rows are counted instead.`);
    xName = "";
  }
  const positions = xPositions(table, groups, xName, choices.logX, remarks);
  const lines: Line[] = [];
  const columns = table.head.columns.filter(({ name }) => choices.columns.includes(name));
  for (const column of columns) {
    for (const group of groups) lines.push(lineOf(table, column, group, groups, positions, choices, lines.length));
  }
  lines.forEach((line) => remarkNonFinite(line, remarks));
  if (choices.logY) dropNonPositive(lines, remarks);
  const xIsInteger = !xName || table.head.columns.some(({ name, type }) => name === xName && type === "int");
  return { x: positions.x, xLabel: xName || "row", xIsInteger, lines, remarks };
}

interface Group {
  name: string; // "" without a legend
  value: string; // of the legend column
  rows: Uint32Array | null; // null: all rows, in order
}

function groupsOf(table: Table, column: string, remarks: string[]): Group[] {
  const legend = column && table.columns[column];
  if (!legend) return [{ name: "", value: "", rows: null }];
  const rows = new Map<string, number[]>();
  for (let row = 0; row < table.count; row++) {
    const name = formatValue(legend[row]);
    const members = rows.get(name);
    if (members) members.push(row);
    else rows.set(name, [row]);
  }
  const all = [...rows].map(([value, members]) => ({
    name: `${column} ${value}`,
    value,
    rows: Uint32Array.from(members),
  }));
  const most = table.mostGroups ?? MAX_GROUPS;
  if (all.length > most) remarks.push(`The last ${most} of ${all.length} values of ${column} are shown.`);
  return all.slice(-Math.min(most, all.length));
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

interface XPositions {
  x: number[];
  of: (group: Group) => (index: number) => number; // index in x of a group's row; -1: none
}

function xPositions(table: Table, groups: Group[], xName: string, log: boolean, remarks: string[]): XPositions {
  const cells = xName ? (table.columns[xName] as number[]) : null;
  const value = (group: Group, index: number): number =>
    cells ? cells[group.rows ? group.rows[index] : index] : index + (log ? 1 : 0);
  const length = (group: Group): number => group.rows?.length ?? table.count;
  let dropped = 0;
  const isPlottable = (number: number): boolean => !log || number > 0;
  if (groups.length === 1) {
    const [onlyGroup] = groups;
    const x: number[] = [];
    const positions = new Int32Array(length(onlyGroup));
    for (let index = 0; index < positions.length; index++) {
      const number = value(onlyGroup, index);
      positions[index] = isPlottable(number) ? x.push(number) - 1 : -1;
      if (positions[index] < 0) dropped++;
    }
    remarkDropped(dropped, "x", remarks);
    return { x, of: () => (index) => positions[index] };
  }
  const numbers = new Set<number>();
  for (const group of groups) {
    for (let index = 0; index < length(group); index++) {
      const number = value(group, index);
      if (isPlottable(number)) numbers.add(number);
      else dropped++;
    }
  }
  remarkDropped(dropped, "x", remarks);
  const x = [...numbers].sort((a, b) => a - b);
  const index = new Map(x.map((number, position) => [number, position]));
  return { x, of: (group) => (position) => index.get(value(group, position)) ?? -1 };
}

function lineOf(
  table: Table,
  column: Column,
  group: Group,
  groups: Group[],
  positions: XPositions,
  choices: LineChoices,
  number: number,
): Line {
  const position = positions.of(group);
  const aligned = alignColumn(table, column.name, group, position, positions.x.length);
  const values = aligned.map((value) => (typeof value === "number" && !Number.isFinite(value) ? null : value));
  const names = [groups.length > 1 || group.name ? group.name : "", column.name].filter(Boolean);
  const errors = choices.error ?? column.error;
  const finite = (value: number | null | undefined): number | null | undefined =>
    Number.isFinite(value ?? 0) ? value : null;
  const error =
    errors && table.columns[errors]
      ? alignColumn(table, errors, group, position, positions.x.length).map(finite)
      : null;
  const smoothed = choices.smoothing > 0 ? smooth(values, choices.smoothing) : null;
  return {
    label: names.reverse().join(" · "),
    column: column.name,
    group: group.value,
    number,
    values: smoothed ?? values,
    raw: smoothed ? values : null,
    nonFinite: aligned.map((value, index) => (values[index] === value ? undefined : value)),
    error,
  };
}

function alignColumn(
  table: Table,
  name: string,
  group: Group,
  position: (index: number) => number,
  length: number,
): Cells {
  const cells = table.columns[name] ?? [];
  const count = group.rows?.length ?? table.count;
  const aligned: Cells = new Array<Cells[number]>(length).fill(undefined);
  for (let index = 0; index < count; index++) {
    const target = position(index);
    if (target < 0) continue;
    const value = cells[group.rows ? group.rows[index] : index];
    aligned[target] = typeof value === "number" ? value : null;
  }
  return aligned;
}

/** Exponential moving average, unbiased at its start. Gaps stay gaps. */
export function smooth(values: Cells, weight: number): Cells {
  let sum = 0;
  let weightSum = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    weightSum = weight * weightSum + (1 - weight);
    return sum / weightSum;
  });
}

function dropNonPositive(lines: Line[], remarks: string[]): void {
  let dropped = 0;
  const positive = (value: number | null | undefined): number | null | undefined => {
    if (typeof value !== "number" || value > 0) return value;
    dropped++;
    return null;
  };
  for (const line of lines) {
    line.values = line.values.map(positive);
    const droppedValues = dropped;
    line.raw = line.raw && line.raw.map(positive);
    dropped = droppedValues; // the raw points are the same ones
  }
  remarkDropped(dropped, "y", remarks);
}

function remarkNonFinite({ label, nonFinite }: Line, remarks: string[]): void {
  const values = nonFinite.filter((value) => typeof value === "number");
  if (!values.length) return;
  const names = [...new Set(values.map((value) => formatValue(value ?? null)))].join(" or ");
  remarks.push(
    `${label} is ${names} at ${values.length} ${values.length === 1 ? "point" : "points"}, marked at the edge.`,
  );
}

function remarkDropped(count: number, axis: string, remarks: string[]): void {
  if (!count) return;
  const points = count === 1 ? "1 point is" : `${count} points are`;
  remarks.push(`${points} not above zero: a logarithmic ${axis} axis has no place for that.`);
}
