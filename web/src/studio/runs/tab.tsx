// The Runs tab: the list of a folder's runs, and beside it their curves, their differences and the current run.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { lineStroke } from "../plots/line_palette";
import { Signal, useValue, type Store } from "../store";
import { TableGrid, type RowChoice } from "../tables/table_grid";
import { theme } from "../theme";
import { ColumnChooser } from "./column_chooser";
import { CurvesPanel } from "./curves_panel";
import { DifferencesPanel } from "./differences_panel";
import { openRun } from "./open_run";
import { ParallelPanel } from "./parallel_panel";
import { RunPanel } from "./run_panel";
import { RunTools } from "./run_tools";
import {
  checked,
  checkRun,
  columns,
  current,
  filterText,
  loadRuns,
  neededColumns,
  order,
  orderedRows,
  rows,
  runLabel,
  shownColumns,
  visibleColumns,
  type RunRows,
} from "./run_list";

const RELOAD_MS = 400; // between two reads of a list that changes, times more for long ones
export const MOST_UNCHECKED = 10; // runs that are drawn while none is checked

/** The Runs tab. */
export function RunsTab({ store }: { store: Store }) {
  const list = useRuns(store);
  const { total, waiting } = useValue(store.runList);
  if (!total) {
    return (
      <p class="empty">
        This is no folder of runs: <code>torcheer studio FOLDER</code> lists those of a folder.
      </p>
    );
  }
  if (!list) return <p class="empty">Reading {total.toLocaleString("en")} runs…</p>;
  return (
    <div class="runs-tab">
      <RunsPane store={store} list={list} total={total} waiting={waiting} />
      <SidePane store={store} list={list} />
    </div>
  );
}

// The list, read again when the server's changes, or when other columns are needed.
function useRuns(store: Store): RunRows | null {
  const list = useValue(rows);
  const { revision, total } = useValue(store.runList);
  const connection = useValue(store.connection);
  const filter = useValue(filterText);
  const sort = useValue(order);
  const chosen = useValue(shownColumns);
  const needed = neededColumns(useValue(columns), chosen, filter, sort).join("\n");
  const lastLoad = useRef(0);
  const fail = (error: Error): void => store.notice(`The list of runs could not be read: ${error.message}.`);
  useEffect(() => {
    if (connection !== "open" || !total) return;
    const pause = lastLoad.current ? RELOAD_MS * (1 + (rows.get()?.ids.length ?? 0) / 1000) : 0;
    const timer = window.setTimeout(
      () => {
        lastLoad.current = Date.now();
        loadRuns(store, true).catch(fail);
      },
      Math.max(0, lastLoad.current + pause - Date.now()),
    );
    return () => window.clearTimeout(timer);
  }, [revision, connection, total > 0]);
  useEffect(() => {
    if (connection === "open" && columns.get().length) loadRuns(store, false).catch(fail);
  }, [needed]);
  return list;
}

function RunsPane({ store, list, total, waiting }: { store: Store; list: RunRows; total: number; waiting: number }) {
  const filter = useValue(filterText);
  const sort = useValue(order);
  const all = useValue(columns);
  const chosen = useValue(shownColumns);
  const [isChoosing, setChoosing] = useState(false);
  const sorted = useMemo(() => orderedRows(list, filter, sort), [list, filter, sort]);
  const shown = useMemo(
    () =>
      shownTable(
        list,
        visibleColumns(all, chosen).map(({ name }) => name),
      ),
    [list, all, chosen],
  );
  const choice = useChoice(store, list, sorted);
  return (
    <section class="table-pane runs-pane" aria-label="Runs">
      <div class="tools">
        <input
          type="search"
          aria-label="Filter runs"
          placeholder="Filter: /name.*/ lr<0.01 tag:baseline"
          title="Words, /regular expression/ of the name, column<number, column=text, column~pattern, tag:word"
          value={filter}
          onInput={({ currentTarget }) => filterText.set(currentTarget.value)}
        />
        <span class="soft count" role="status">
          {countText(sorted.length, list.ids.length, total, waiting)}
        </span>
        <RunTools store={store} list={list} sorted={sorted} chooseColumns={() => setChoosing(true)} />
      </div>
      {waiting > 0 && <progress aria-label="Runs read" max={total} value={total - waiting} />}
      {sorted.length ? (
        <TableGrid table={shown} order={sorted} sort={sort} setSort={(next) => order.set(next)} choice={choice} />
      ) : (
        <p class="empty">{list.ids.length ? `No run fits “${filter}”.` : "No run has been read yet."}</p>
      )}
      {isChoosing && <ColumnChooser close={() => setChoosing(false)} />}
    </section>
  );
}

function countText(shown: number, read: number, total: number, waiting: number): string {
  const number = (count: number): string => count.toLocaleString("en");
  if (waiting) return `${number(total - waiting)} of ${number(total)} runs read`;
  return shown === read ? `${number(read)} ${read === 1 ? "run" : "runs"}` : `${number(shown)} of ${number(read)} runs`;
}

// The table with the shown columns only; the others are there for the filter.
function shownTable(list: RunRows, names: string[]) {
  const heads = new Map(list.table.head.columns.map((column) => [column.name, column]));
  return { ...list.table, head: { ...list.table.head, columns: names.flatMap((name) => heads.get(name) ?? []) } };
}

function useChoice(store: Store, list: RunRows, sorted: Uint32Array): RowChoice {
  const chosen = useValue(checked);
  const focused = useValue(current);
  const themeName = useValue(theme);
  const drawn = drawnRuns(list, sorted, chosen);
  return {
    label: (row) => runLabel(list, row),
    isChecked: (row) => chosen.has(list.ids[row]),
    check: (row, isRange) => checkRun(list, sorted, row, isRange),
    isCurrent: (row) => list.ids[row] === focused,
    setCurrent: (row) => current.set(list.ids[row]),
    open: (row) => openRun(store, list.ids[row]),
    swatch: (row) => {
      const place = drawn.indexOf(row);
      return place < 0 ? "" : lineStroke(place, themeName).colour;
    },
  };
}

/** The rows whose curves are drawn: the checked ones, or else the first of the list. */
export function drawnRuns(list: RunRows, sorted: Uint32Array, chosen: ReadonlySet<number>): number[] {
  if (!chosen.size) return Array.from(sorted.subarray(0, MOST_UNCHECKED));
  return [...list.ids.keys()].filter((row) => chosen.has(list.ids[row]));
}

const SIDES = {
  curves: "Curves",
  differences: "Differences",
  parallel: "Parallel coordinates",
  run: "Current run",
} as const;
type Side = keyof typeof SIDES;
const side = new Signal<Side>("curves");

function SidePane({ store, list }: { store: Store; list: RunRows }) {
  const shown = useValue(side);
  const filter = useValue(filterText);
  const sort = useValue(order);
  const chosen = useValue(checked);
  const sorted = useMemo(() => orderedRows(list, filter, sort), [list, filter, sort]);
  const drawn = useMemo(() => drawnRuns(list, sorted, chosen), [list, sorted, chosen]);
  return (
    <section class="runs-side" aria-label="Chosen runs">
      <div class="segments" role="radiogroup" aria-label="Show">
        {(Object.keys(SIDES) as Side[]).map((name) => (
          <label key={name} class={name === shown ? "on" : undefined}>
            <input type="radio" name="runs-side" checked={name === shown} onChange={() => side.set(name)} />
            {SIDES[name]}
          </label>
        ))}
      </div>
      {shown === "curves" && <CurvesPanel store={store} list={list} drawn={drawn} />}
      {shown === "differences" && <DifferencesPanel store={store} list={list} rows={drawn} />}
      {shown === "parallel" && <ParallelPanel list={list} rows={chosen.size ? drawn : Array.from(sorted)} />}
      {shown === "run" && <RunPanel store={store} list={list} />}
    </section>
  );
}
