// The Plots tab: a table's columns as lines, optionally with the table beside them.
import { useMemo, useState } from "preact/hooks";

import { Icon } from "../shell/icons";
import { useValue, type Store } from "../store";
import { NoTables, TableChooser, useTable } from "../tables/table_chooser";
import { TablePane } from "../tables/table_pane";
import type { Table } from "../tables/table_rows";
import { loadItem, saveItem } from "../local_storage";
import { plotChoices, choicesOf, effectiveChoices } from "./plot_choices";
import { buildLines, plottable } from "./plot_lines";
import { PlotOptions } from "./plot_options";
import { Plot } from "./plot";
import { buildView } from "./plot_view";

const TABLE_BESIDE_KEY = "torcheer.table-beside";

/** The Plots tab. */
export function PlotsTab({ store }: { store: Store }) {
  const { table, all } = useTable(store);
  const [isTableShown, setTableShown] = useState(loadItem(TABLE_BESIDE_KEY) === "yes");
  if (!table) return <NoTables store={store} plural="plots" />;
  const toggle = (): void => {
    saveItem(TABLE_BESIDE_KEY, isTableShown ? "no" : "yes");
    setTableShown(!isTableShown);
  };
  return (
    <div class="plots-tab">
      <div class="row between">
        <TableChooser all={all} table={table} />
        <button aria-pressed={isTableShown} onClick={toggle}>
          <Icon name="table" /> Table
        </button>
      </div>
      <div class={`plot-split${isTableShown ? " beside" : ""}`}>
        <PlotPanel key={table.head.name} table={table} />
        {isTableShown && <TablePane key={`${table.head.name} rows`} store={store} table={table} />}
      </div>
    </div>
  );
}

function PlotPanel({ table }: { table: Table }) {
  const { name, title } = table.head;
  const choices = choicesOf(useValue(plotChoices), name);
  const { zoom, ...lineChoices } = choices;
  const key = JSON.stringify(lineChoices, (_name, value) => (value instanceof Map ? [...value] : value));
  const lines = useMemo(() => buildLines(table, effectiveChoices(table, choices)), [table, key]);
  const view = useMemo(() => buildView(lines, table.head.columns, effectiveChoices(table, choices), zoom), [lines, zoom]);
  return (
    <div class="plotted">
      <PlotOptions table={table} choices={choices} view={view} />
      <div class="plot-area">
        <Plot name={name} title={title || name} view={view} zoomed={!!(zoom.x || zoom.y)} />
        <EmptyPlot table={table} lines={view.lines.length} />
      </div>
    </div>
  );
}

function EmptyPlot({ table, lines }: { table: Table; lines: number }) {
  const reason = !plottable(table).length
    ? "This table has no column of numbers: the Tables tab shows it."
    : !table.count
      ? "Nothing recorded yet: lines appear here as rows come."
      : !lines
        ? "No column is chosen: switch some on at the left."
        : "";
  return reason ? <p class="empty over">{reason}</p> : null;
}
