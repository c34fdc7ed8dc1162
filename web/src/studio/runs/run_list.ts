// The list of runs: its columns, cells, filter and order, the chosen runs; it outlives the tab and the opened run.
import type { Json, RunCells, RunColumn, TableHead } from "../messages";
import { loadItem, saveItem } from "../local_storage";
import { parseNumbers } from "../non_finite";
import { Signal } from "../signal";
import type { Store } from "../store";
import { columnsNamed, orderRows, parseFilter, type Sort } from "../tables/row_order";
import { emptyTable, withRows, type Table } from "../tables/table_rows";

export type { RunColumn };

/** The cells that were asked for: row `index` of the table is the run `ids[index]`. */
export interface RunRows {
  ids: number[];
  table: Table;
}

export const columns = new Signal<RunColumn[]>([]);
export const rows = new Signal<RunRows | null>(null);
export const filterText = new Signal("");
export const order = new Signal<Sort | null>({ column: "Changed", down: true });
export const shownColumns = new Signal<string[] | null>(loadColumns()); // null: the usual ones
export const checked = new Signal<ReadonlySet<number>>(new Set());
export const current = new Signal(-1); // the run whose details are shown

const COLUMNS_KEY = "torcheer.run-columns";
const ALWAYS = ["Name", "Status", "Tags", "Folder"];
const USUAL_RESULTS = /^(val[ _/-]?loss|loss|train[ _/-]?loss|val[ _/-]?acc\w*|accuracy|acc)$/i;
const MOST_USUAL_CONFIG = 5;
const MOST_USUAL_RESULTS = 3;
const MOST_ASKED = 100;

/** The columns that are shown, in order: those that people chose, or those that tell runs apart. */
export function visibleColumns(all: RunColumn[], chosen: string[] | null): RunColumn[] {
  const names = chosen?.filter((name) => all.some((column) => column.name === name)) ?? usualColumns(all);
  return ["Name", ...names.filter((name) => name !== "Name")].flatMap(
    (name) => all.find((column) => column.name === name) ?? [],
  );
}

/** The columns that are shown unless others are chosen. */
export function usualColumns(all: RunColumn[]): string[] {
  const named = (group: string): RunColumn[] => all.filter((column) => column.group === group && column.varies);
  const config = named("config").slice(0, MOST_USUAL_CONFIG);
  const results = named("result").sort(
    (a, b) => Number(USUAL_RESULTS.test(b.name)) - Number(USUAL_RESULTS.test(a.name)),
  );
  const facts = named("run").filter(({ name }) =>
    ["Status", "Problem", "Tags", ...(results.length ? [] : ["Summary"])].includes(name),
  );
  return [...[...facts, ...results.slice(0, MOST_USUAL_RESULTS), ...config].map(({ name }) => name), "Changed"];
}

/** Choose the columns; null for the usual ones. */
export function chooseColumns(names: string[] | null): void {
  shownColumns.set(names);
  saveItem(COLUMNS_KEY, JSON.stringify(names));
}

function loadColumns(): string[] | null {
  try {
    const names: unknown = JSON.parse(loadItem("torcheer.run-columns") ?? "null");
    return Array.isArray(names) && names.every((name) => typeof name === "string") ? names : null;
  } catch {
    return null;
  }
}

/** The columns that a page needs: shown ones, those of the filter and the order, and what names a run. */
export function neededColumns(all: RunColumn[], chosen: string[] | null, filter: string, sort: Sort | null): string[] {
  const names = all.map(({ name }) => name);
  const mentioned = parseFilter(names, filter).conditions.flatMap((condition) => condition.columns);
  const shown = visibleColumns(all, chosen).map(({ name }) => name);
  const sorted = sort ? columnsNamed(names, sort.column) : [];
  return [...new Set([...ALWAYS, ...shown, ...mentioned, ...sorted])].slice(0, MOST_ASKED);
}

/** The table of an answer: its columns in the order of `names`. */
export function tableOf(all: RunColumn[], answer: Pick<RunCells, "ids" | "columns">): RunRows {
  const cells = answer.columns as Record<string, Json[]>;
  const described = new Map(all.map((column) => [column.name, column]));
  const head: TableHead = {
    name: "runs",
    title: "Runs",
    x: "",
    legend: "",
    layer: "",
    columns: Object.keys(cells).map((name) => headOf(described.get(name), name, cells[name])),
  };
  const parsed = Object.fromEntries(
    Object.entries(cells).map(([name, list]) => [
      name,
      described.get(name)?.type === "text" ? list : list.map(parseNumbers),
    ]),
  );
  return { ids: answer.ids, table: withRows(emptyTable(head), { first: 0, columns: parsed }) };
}

// A column of a config is one of numbers if its cells are.
function headOf(column: RunColumn | undefined, name: string, cells: Json[]): TableHead["columns"][number] {
  const isNumeric = column?.group === "config" && cells.every((cell) => cell === null || typeof cell === "number");
  const type = isNumeric ? "float" : (column?.type ?? "text");
  return { name, type, shape: [], plotted: true, fixed: null, error: "", edges: [] };
}

/** The rows that pass the filter, in order. */
export function orderedRows(list: RunRows, filter: string, sort: Sort | null): Uint32Array {
  return orderRows(list.table, filter, sort);
}

/** A run's name as people see it, with its folder where another run has the same name. */
export function runLabel(list: RunRows, row: number): string {
  const name = String(list.table.columns.Name?.[row] ?? "");
  const folder = String(list.table.columns.Folder?.[row] ?? "");
  const isTwice = name !== folder && list.table.columns.Name?.some((other, index) => other === name && index !== row);
  return isTwice ? `${name} (${folder})` : name;
}

/** Check a run, or with a range all rows from the last one checked. */
export function checkRun(list: RunRows, sorted: Uint32Array, row: number, isRange: boolean): void {
  const next = new Set(checked.get());
  const isOn = !next.has(list.ids[row]);
  const [from, to] = isRange && lastChecked >= 0 ? rangeOf(sorted, lastChecked, row) : [0, -1];
  const changed = to >= from ? Array.from(sorted.subarray(from, to + 1)) : [row];
  for (const each of changed) next[isOn ? "add" : "delete"](list.ids[each]);
  lastChecked = row;
  checked.set(next);
}

let lastChecked = -1;

function rangeOf(sorted: Uint32Array, first: number, last: number): [number, number] {
  const places = [sorted.indexOf(first), sorted.indexOf(last)];
  return places.includes(-1) ? [0, -1] : [Math.min(...places), Math.max(...places)];
}

/** Ask for the columns, then for the cells that are needed; the newest question wins. */
export async function loadRuns(store: Store, withColumns: boolean): Promise<void> {
  const number = ++loads;
  if (withColumns || !columns.get().length) {
    const listed = await store.ask({ kind: "ask_run_columns" });
    if (number !== loads) return;
    columns.set(listed);
  }
  const needed = neededColumns(columns.get(), shownColumns.get(), filterText.get(), order.get());
  const answer = await store.ask({ kind: "ask_runs", columns: needed });
  if (number === loads) rows.set(tableOf(columns.get(), answer));
}

let loads = 0;
