// The Plots tab: a table's columns as lines, and the table beside them.
import { useMemo, useState } from "preact/hooks";

import { Icon } from "../shell/icons";
import { useValue, type Store } from "../store";
import { NoTables, TableChooser, useTable } from "../tables/table_chooser";
import { TablePane } from "../tables/table_pane";
import type { Table } from "../tables/table_rows";
import { recall, remember } from "../theme";
import { choices, choicesOf, drawnChoices } from "./plot_choices";
import { linesOf, plottable } from "./plot_lines";
import { Options } from "./plot_options";
import { Plot } from "./plot";
import { viewOf } from "./plot_view";

const BESIDE = "torcheer.table-beside";

/** The tab. */
export function PlotsTab({ store }: { store: Store }) {
  const { table, all } = useTable(store);
  const [beside, setBeside] = useState(recall(BESIDE) === "yes");
  if (!table) return <NoTables store={store} what="plots" />;
  const toggle = (): void => {
    remember(BESIDE, beside ? "no" : "yes");
    setBeside(!beside);
  };
  return (
    <div class="plots-tab">
      <div class="row between">
        <TableChooser all={all} table={table} />
        <button aria-pressed={beside} onClick={toggle}>
          <Icon name="table" /> Table
        </button>
      </div>
      <div class={`plot-split${beside ? " beside" : ""}`}>
        <Plotted key={table.head.name} table={table} />
        {beside && <TablePane key={`${table.head.name} rows`} store={store} table={table} />}
      </div>
    </div>
  );
}

function Plotted({ table }: { table: Table }) {
  const { name, title } = table.head;
  const chosen = choicesOf(useValue(choices), name);
  const { zoom, ...rest } = chosen;
  const key = JSON.stringify(rest, (_name, value) => (value instanceof Map ? [...value] : value));
  const lines = useMemo(() => linesOf(table, drawnChoices(table, chosen)), [table, key]);
  const view = useMemo(() => viewOf(lines, table.head.columns, drawnChoices(table, chosen), zoom), [lines, zoom]);
  return (
    <div class="plotted">
      <Options table={table} choices={chosen} view={view} />
      <div class="plot-area">
        <Plot name={name} title={title || name} view={view} zoomed={!!(zoom.x || zoom.y)} />
        <Nothing table={table} lines={view.lines.length} />
      </div>
    </div>
  );
}

function Nothing({ table, lines }: { table: Table; lines: number }) {
  const why = !plottable(table).length
    ? "This table has no column of numbers: the Tables tab shows it."
    : !table.count
      ? "Nothing recorded yet: lines appear here as rows come."
      : !lines
        ? "No column is chosen: switch some on at the left."
        : "";
  return why ? <p class="empty over">{why}</p> : null;
}
