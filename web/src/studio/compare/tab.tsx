// The Compare tab: two checkpoints, files or passes side by side; what differs, layer by layer.
import { useEffect, useMemo, useState } from "preact/hooks";

import type { ComparisonCame } from "../messages";
import { Icon } from "../shell/icons";
import { Signal, useValue, type Store } from "../store";
import { download, formatCsv } from "../tables/csv";
import type { Sort } from "../tables/row_order";
import { TableGrid, type RowChoice } from "../tables/table_grid";
import type { Table } from "../tables/table_rows";
import { filledColumns, layerOf, lookedAt, rowOf, shownRows, TABLE, toneOf } from "./difference_rows";
import { PairView } from "./pair_view";

const filterText = new Signal("");
const isShort = new Signal(false);
const order = new Signal<Sort | null>(null);

/** The tab. */
export function CompareTab({ store }: { store: Store }) {
  const comparison = useValue(store.comparison);
  const table = useValue(store.tables).get(TABLE);
  if (!comparison)
    return (
      <p class="empty">
        Nothing is compared here. <code>torcheer studio A B</code> shows two checkpoints, model files or saved histories
        side by side; in a list of runs, choose two and press “Compare…”.
      </p>
    );
  return (
    <div class="compare-tab">
      <Heading comparison={comparison} />
      {table?.count ? (
        <Compared store={store} comparison={comparison} table={table} />
      ) : (
        <p class="empty">{comparison.done ? "Neither has a tensor to compare." : "Comparing…"}</p>
      )}
    </div>
  );
}

function Heading({ comparison }: { comparison: ComparisonCame }) {
  const { first, second, summary, compared, total, done } = comparison;
  return (
    <header class="compare-heading">
      <p class="compare-names">
        <span class="side">First</span> <b title={first}>{first}</b>
        <span class="side">Second</span> <b title={second}>{second}</b>
      </p>
      {!done && total > 0 && <progress aria-label="Compared" max={total} value={compared} />}
      {summary.length > 1 ? (
        <details class="compare-summary">
          <summary>{summary[0]}</summary>
          <pre>{summary.slice(1).join("\n")}</pre>
        </details>
      ) : (
        <p class="soft">{summary[0]}</p>
      )}
    </header>
  );
}

function Compared({ store, comparison, table }: { store: Store; comparison: ComparisonCame; table: Table }) {
  const [chosen, setChosen] = useState("");
  const selection = useValue(store.selection);
  const net = useValue(store.net);
  const layer = lookedAt(table, chosen, selection, comparison.first_difference);
  useEffect(() => setChosen(""), [selection?.layer]); // what was selected elsewhere is looked at here
  const choose = (name: string): void => {
    const isDrawn = net?.layers.some((placed) => placed.layer.name === name);
    if (isDrawn && selection?.layer !== name) store.selection.set({ layer: name, unit: 0 });
    else setChosen(name);
  };
  return (
    <div class="compare-panes">
      <Differences table={table} layer={layer} first={comparison.first_difference} choose={choose} />
      <PairView store={store} layer={layer} comparison={comparison} />
    </div>
  );
}

interface DifferencesProps {
  table: Table;
  layer: string;
  first: string;
  choose: (layer: string) => void;
}

function Differences({ table, layer, first, choose }: DifferencesProps) {
  const [filter, sort, short] = [useValue(filterText), useValue(order), useValue(isShort)];
  const shown = useMemo(() => filledColumns(table), [table]);
  const rows = useMemo(() => shownRows(table, filter, sort, short), [table, filter, sort, short]);
  const firstRow = rowOf(table, first);
  const [reveal, setReveal] = useState(-1);
  useEffect(() => setReveal(firstRow), [firstRow]); // it opens on what differs, once that is known
  const current = rowOf(table, layer);
  const choice: RowChoice = {
    label: (row) => layerOf(table, row),
    isCurrent: (row) => row === current,
    setCurrent: (row) => choose(layerOf(table, row)),
    open: (row) => choose(layerOf(table, row)),
    tone: (row) => toneOf(table, row),
  };
  const goToFirst = (): void => {
    filterText.set("");
    choose(first);
    setReveal(firstRow);
  };
  return (
    <section class="table-pane" aria-label="Differences">
      <div class="tools">
        <input
          type="search"
          aria-label="Filter layers"
          placeholder="Filter: words, Relative>0.01"
          value={filter}
          onInput={({ currentTarget }) => filterText.set(currentTarget.value)}
        />
        <label class="check">
          <input type="checkbox" checked={short} onChange={({ currentTarget }) => isShort.set(currentTarget.checked)} />
          Differences only
        </label>
        <span class="soft count" role="status">
          {rows.length === table.count ? `${table.count} rows` : `${rows.length} of ${table.count} rows`}
        </span>
        <div class="row end">
          <button class="quiet" disabled={!first} title={first} onClick={goToFirst}>
            First difference
          </button>
          <button class="quiet" disabled={!rows.length} onClick={() => saveRows(shown, rows)}>
            <Icon name="down" /> CSV
          </button>
        </div>
      </div>
      {rows.length ? (
        <TableGrid
          table={shown}
          order={rows}
          sort={sort}
          setSort={(next) => order.set(next)}
          choice={choice}
          reveal={reveal}
          isFollowing={false}
        />
      ) : (
        <p class="empty">{filter ? `No layer fits “${filter}”.` : "No layer differs."}</p>
      )}
    </section>
  );
}

function saveRows(table: Table, rows: Uint32Array): void {
  const names = table.head.columns.map(({ name }) => name);
  const cells = Array.from(rows, (row) => names.map((name) => table.columns[name]?.[row] ?? null));
  download("differences.csv", formatCsv(names, cells), "text/csv");
}
