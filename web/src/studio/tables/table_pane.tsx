// A table with its filter and exports; on its own tab, and beside a plot.
import { useMemo, useState } from "preact/hooks";

import type { Json } from "../messages";
import { Icon } from "../shell/icons";
import type { Store } from "../store";
import { Comparison } from "./comparison";
import { copyText, formatCsv, download } from "./csv";
import { TableGrid } from "./table_grid";
import { orderRows, type Sort } from "./row_order";
import type { Table } from "./table_rows";

const savedChoices = new Map<string, { filter: string; sort: Sort | null }>(); // by table, for when its tab is opened again

/** The table and its tools. */
export function TablePane({ store, table }: { store: Store; table: Table }) {
  const { name } = table.head;
  const [{ filter, sort }, setChoice] = useState(savedChoices.get(name) ?? { filter: "", sort: null });
  const choose = (choice: { filter: string; sort: Sort | null }): void => {
    savedChoices.set(name, choice);
    setChoice(choice);
  };
  const [comparedColumn, setComparedColumn] = useState<string | null>(null);
  const order = useMemo(() => orderRows(table, filter, sort), [table, filter, sort]);
  const names = table.head.columns.map((column) => column.name);
  const copyRows = async (): Promise<void> => {
    const isCopied = await copyText(formatCsv(names, rowsOf(table, order), "\t"));
    if (isCopied) store.notice(`Copied ${order.length} rows.`, "done");
    else store.notice("The browser does not let this page copy: use CSV instead.");
  };
  return (
    <div class="table-pane">
      <div class="tools">
        <input
          type="search"
          aria-label="Filter rows"
          placeholder="Filter: words, loss<0.5"
          value={filter}
          onInput={({ currentTarget }) => choose({ filter: currentTarget.value, sort })}
        />
        <span class="soft count" role="status">
          {filter ? `${order.length} of ${table.count} rows` : `${table.count} rows`}
        </span>
        <div class="row end">
          <button class="quiet" disabled={!order.length} onClick={() => void copyRows()}>
            <Icon name="copy" /> Copy
          </button>
          <button
            class="quiet"
            disabled={!order.length}
            onClick={() => download(`${name}.csv`, formatCsv(names, rowsOf(table, order)), "text/csv")}
          >
            <Icon name="down" /> CSV
          </button>
        </div>
      </div>
      {!table.count ? (
        <p class="empty">Nothing recorded yet: rows appear here as they come.</p>
      ) : !order.length ? (
        <p class="empty">No row fits “{filter}”.</p>
      ) : (
        <TableGrid
          table={table}
          order={order}
          sort={sort}
          setSort={(newSort) => choose({ filter, sort: newSort })}
          compare={setComparedColumn}
        />
      )}
      {comparedColumn !== null && (
        <Comparison store={store} table={table.head} column={comparedColumn} close={() => setComparedColumn(null)} />
      )}
    </div>
  );
}

function* rowsOf(table: Table, order: Uint32Array): Iterable<Json[]> {
  for (const row of order) yield table.head.columns.map(({ name }) => table.columns[name]?.[row] ?? null);
}
