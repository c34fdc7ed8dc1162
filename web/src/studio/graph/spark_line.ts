// A statistic of a layer over the steps, as a small line.
import { firstTable, loggedTables, seriesOf, type SeriesPoint } from "../inspector/logged_series";
import type { Layer } from "../messages";
import type { Table } from "../tables/table_rows";

const MAX_POINTS = 60;
const STATISTICS = ["norm", "rms", "std", "mean"]; // the first that was logged is drawn

/** What the log says of a layer over the steps. */
export interface LoggedLine {
  table: string;
  statistic: string;
  points: SeriesPoint[]; // up to the step that is looked at
}

/** The line of a layer, for a variable of the Network tab; null where nothing was logged. */
export function loggedLine(
  tables: ReadonlyMap<string, Table>,
  layer: Layer,
  variable: string,
  step: number,
): LoggedLine | null {
  const table = firstTable(loggedTables(tables, layer), layer, variable, "");
  const statistic = table && STATISTICS.find((name) => table.columns[name]);
  if (!table || !statistic) return null;
  const points = seriesOf(table, statistic, MAX_POINTS).filter(({ x }) => x <= step);
  return points.length > 1 ? { table: table.head.name, statistic, points } : null;
}

/** The line's path in a rectangle from 0,0 to width,height; a level one runs through the middle. */
export function sparkPath(points: readonly SeriesPoint[], width: number, height: number): string {
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const place = (value: number, values: number[], size: number): number => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high > low ? (size * (value - low)) / (high - low) : size / 2;
  };
  const ends = points.map(({ x, y }) => [place(x, xs, width), height - place(y, ys, height)]);
  return "M" + ends.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
}
