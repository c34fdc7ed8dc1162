// From curves of many runs to one table, whose legend column is the run: the Plots tab's mechanism draws it.
import type { Json, RunCurve, TableHead } from "../messages";
import { parseNumbers } from "../non_finite";
import { emptyTable, withRows, type Table } from "../tables/table_rows";

export type { RunCurve };

/** The table of all curves, and what is left out of it. */
export interface Overlay {
  table: Table;
  remarks: string[];
}

const RUN = "Run";
const plain = { shape: [], plotted: true, fixed: null, error: "", edges: [] };

/** One table of curves over the same x; others are left out with a remark. `label` names a run. */
export function overlayOf(curves: RunCurve[], series: string[], label: (run: number) => string): Overlay {
  const xName = curves[0]?.x_name ?? "Step";
  const fitting = curves.filter((curve) => curve.x_name === xName);
  const columns: Record<string, Json[]> = { [xName]: [], [RUN]: [] };
  for (const name of series) columns[name] = [];
  for (const [run, own] of byRun(fitting)) addRun(columns, series, xName, own, label(run));
  const head: TableHead = {
    name: "runs",
    title: series.join(", "),
    x: xName,
    legend: RUN,
    layer: "",
    columns: [
      { ...plain, name: xName, type: "int", plotted: false },
      { ...plain, name: RUN, type: "text", plotted: false },
      ...series.map((name) => ({ ...plain, name, type: "float" })),
    ],
  };
  const table = { ...withRows(emptyTable(head), { first: 0, columns }), mostGroups: Infinity };
  return { table, remarks: remarksOf(curves, fitting, xName) };
}

function byRun(curves: RunCurve[]): Map<number, RunCurve[]> {
  const runs = new Map<number, RunCurve[]>();
  for (const curve of curves) runs.set(curve.run, [...(runs.get(curve.run) ?? []), curve]);
  return runs;
}

// The rows of a run: one for each x of any of its series.
function addRun(columns: Record<string, Json[]>, series: string[], xName: string, own: RunCurve[], name: string): void {
  const places = [...new Set(own.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const start = columns[xName].length;
  const rowOf = new Map(places.map((x, index) => [x, start + index]));
  for (const x of places) {
    columns[xName].push(x);
    columns[RUN].push(name);
    for (const each of series) columns[each].push(null);
  }
  for (const { series: each, x, y } of own) {
    x.forEach((value, index) => (columns[each][rowOf.get(value)!] = parseNumbers(y[index])));
  }
}

function remarksOf(curves: RunCurve[], fitting: RunCurve[], xName: string): string[] {
  const others = [...new Set(curves.filter((curve) => !fitting.includes(curve)).map((curve) => curve.x_name))];
  const thinned = fitting.filter(({ x, points }) => x.length < points).length;
  return [
    ...(others.length ? [`Drawn over ${xName}; metrics that count ${others.join(", ")} are left out.`] : []),
    ...(thinned ? [`${thinned === 1 ? "1 curve is" : `${thinned} curves are`} thinned to their extremes.`] : []),
  ];
}

/** The metric that is drawn first: a loss of the validation, a loss, or the first one. */
export function usualSeries(names: string[]): string[] {
  const wanted = [/^(val|valid|validation|test)[ _/-]?loss$/i, /^(train[ _/-]?)?loss$/i, /loss/i, /acc/i];
  const match = wanted.flatMap((pattern) => names.find((name) => pattern.test(name)) ?? []);
  return (match.length ? match : names).slice(0, 1);
}
