// Statistics of a layer over time, as the run's log has them.
import type { Layer } from "../messages";
import { variableOf } from "../tables/table_groups";
import type { Table } from "../tables/table_rows";
import { LOG_NAMES } from "../../vocabulary";

export interface SeriesPoint {
  x: number;
  y: number;
}

/** The tables of a layer's statistics: its own, and those of its parts. */
export function loggedTables(tables: ReadonlyMap<string, Table>, layer: Layer): Table[] {
  const names = new Set([layer.name, ...layer.also]);
  return [...tables.values()].filter(({ head }) => head.layer && names.has(head.layer));
}

/** Columns of a table that are numbers, without its steps. */
export function statisticNames({ head }: Table): string[] {
  return head.columns.filter(({ name, type }) => type !== "text" && type !== "tensor" && name !== head.x).map(({ name }) => name); // prettier-ignore
}

/** The table to begin with: of the layer's output, or of the weight or gradient that is looked at. */
export function firstTable(tables: readonly Table[], layer: Layer, variable: string, parameter: string): Table | null {
  const wanted = LOG_NAMES[variable] ?? "output";
  const own = tables.filter(({ head }) => (parameter ? parameter.startsWith(head.layer) : true));
  return (
    own.find((table) => variableOf(table) === wanted && table.head.layer === (parameter || layer.name)) ??
    own.find((table) => variableOf(table) === wanted) ??
    own.find((table) => variableOf(table).startsWith(wanted)) ??
    tables[0] ??
    null
  );
}

/** A statistic by step, finite numbers only; beyond `most` points, the extremes of each stretch. */
export function seriesOf(table: Table, name: string, most = 400): SeriesPoint[] {
  const [xs, ys] = [table.columns[table.head.x] ?? [], table.columns[name] ?? []];
  const points: SeriesPoint[] = [];
  ys.forEach((y, row) => {
    const x = xs[row] ?? row;
    if (typeof y === "number" && Number.isFinite(y) && typeof x === "number") points.push({ x, y });
  });
  if (points.length <= most) return points;
  const size = Math.ceil((2 * points.length) / most);
  const thinned: SeriesPoint[] = [];
  for (let start = 0; start < points.length; start += size) {
    const part = points.slice(start, start + size);
    const [low, high] = [part.reduce((a, b) => (b.y < a.y ? b : a)), part.reduce((a, b) => (b.y > a.y ? b : a))];
    thinned.push(...(low.x <= high.x ? [low, high] : [high, low]));
  }
  return thinned;
}
