// Settings in which runs differ, as a table: a row for each setting, a column for each run.
import type { Json, TableHead } from "../messages";
import { formatValue } from "../tables/value_format";
import { emptyTable, withRows, type Table } from "../tables/table_rows";

const plain = { type: "text", shape: [], plotted: false, fixed: null, error: "", edges: [] };

/** What differs, and how many settings are the same in all runs. */
export interface Differences {
  table: Table;
  same: number;
}

const textOf = (value: Json | undefined): string | null => (value === undefined ? null : formatValue(value));

/** Compare configs; `labels` name the runs, each once. */
export function differencesOf(configs: Record<string, Json>[], labels: string[]): Differences {
  const names = [...new Set(configs.flatMap((config) => Object.keys(config)))];
  const differing = names.filter((name) => new Set(configs.map((config) => JSON.stringify(config[name]))).size > 1);
  const head: TableHead = {
    name: "differences",
    title: "Differences of configs",
    x: "",
    legend: "",
    layer: "",
    columns: ["Setting", ...labels].map((name) => ({ ...plain, name })),
  };
  const cells: Record<string, Json[]> = { Setting: differing };
  labels.forEach((label, index) => (cells[label] = differing.map((name) => textOf(configs[index][name]))));
  const table = withRows(emptyTable(head), { first: 0, columns: cells });
  return { table, same: names.length - differing.length };
}
