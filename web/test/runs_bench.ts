// The page's share of listing, filtering and drawing runs; bundled and run by web/bench.mjs.
import { readFileSync } from "node:fs";

import type { Json, RunCells } from "../src/studio/messages";
import { buildLines } from "../src/studio/plots/plot_lines";
import { buildView, FULL_ZOOM } from "../src/studio/plots/plot_view";
import { orderedRows, tableOf, type RunColumn, type RunRows } from "../src/studio/runs/run_list";
import { overlayOf, type RunCurve } from "../src/studio/runs/run_overlay";

const FILTERS = ["lr<0.01", "/run-0[0-4]/ loss<0.5", "tag:baseline", "seed=77", "run-01"];
const SORT = { column: "loss", down: true };

declare const process: { cpuUsage(before?: object): { user: number; system: number } };

// Of CPU time: the machine may have others to serve.
function seconds(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

function answerOf(file: string): Json {
  return (JSON.parse(readFileSync(file, "utf8")) as { value: Json }).value;
}

/** Seconds that the page takes to list, to filter (the slowest of several), and to make lines of curves. */
export function measure([columnsFile, runsFile, curvesFile]: string[]): Record<string, number> {
  let list: RunRows | null = null;
  const listing = seconds(() => {
    const columns = answerOf(columnsFile) as unknown as RunColumn[];
    list = tableOf(columns, answerOf(runsFile) as unknown as RunCells);
    orderedRows(list, "", SORT);
  });
  const filtering = FILTERS.map((filter) => seconds(() => orderedRows(list!, filter, SORT)));
  const drawing = seconds(() => {
    const { curves } = answerOf(curvesFile) as unknown as { curves: RunCurve[] };
    const { table } = overlayOf(curves, ["loss"], String);
    const choices = {
      x: "Step",
      legend: "Run",
      error: null,
      columns: ["loss"],
      smoothing: 0.6,
      logX: false,
      logY: false,
    };
    const lines = buildLines(table, choices);
    buildView(lines, table.head.columns, { ...choices, separateAxes: false, limits: new Map() }, FULL_ZOOM);
  });
  return { list: listing, filter: Math.max(...filtering), curves: drawing };
}
