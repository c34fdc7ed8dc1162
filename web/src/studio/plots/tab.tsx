// The Plots tab: a table's columns as lines, or its histograms over time; optionally with the table beside them.
import { useMemo, useState } from "preact/hooks";

import { Icon } from "../shell/icons";
import { isSelectedLabel, selectedNames } from "../selected_names";
import { Signal, useValue, type Store } from "../store";
import { NoTables, TableChooser, useTable } from "../tables/table_chooser";
import { TablePane } from "../tables/table_pane";
import type { Table } from "../tables/table_rows";
import { loadItem, saveItem } from "../local_storage";
import { plotChoices, choicesOf, effectiveChoices } from "./plot_choices";
import { buildLines, plottable } from "./plot_lines";
import { PlotOptions } from "./plot_options";
import { Plot } from "./plot";
import { buildView } from "./plot_view";
import { HistogramPlot } from "./histogram_plot";
import { buildHistogram, histogramColumn, type HistogramView } from "./histogram_view";

const shownAs = new Signal<"lines" | "histogram">("lines");
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
        <TableChooser all={all} table={table} store={store} />
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

// Lines, or histograms over time where the table has them; the choice is kept from table to table.
function PlotPanel({ table }: { table: Table }) {
  const isHistogram = useValue(shownAs) === "histogram";
  const histogram = useMemo(() => buildHistogram(table), [table]);
  return (
    <div class="plotted">
      {histogramColumn(table) && <ShownAsChoice />}
      {isHistogram && histogram ? <HistogramPanel table={table} view={histogram} /> : <LinesPanel table={table} />}
    </div>
  );
}

function ShownAsChoice() {
  const current = useValue(shownAs);
  return (
    <div class="segments shown-as" role="radiogroup" aria-label="Show as">
      {(["lines", "histogram"] as const).map((name) => (
        <label key={name} class={name === current ? "on" : undefined}>
          <input type="radio" name="shown-as" checked={name === current} onChange={() => shownAs.set(name)} />
          {name === "lines" ? "Lines" : "Histogram over time"}
        </label>
      ))}
    </div>
  );
}

function HistogramPanel({ table, view }: { table: Table; view: HistogramView }) {
  const { name, title } = table.head;
  return (
    <div class="plot-area">
      <HistogramPlot name={name} title={title || name} view={view} />
    </div>
  );
}

interface LinesPanelProps {
  table: Table;
  marked?: string; // the value of the legend column whose lines stand out; "": those of the selected layer
  pick?: (group: string) => void; // a line was clicked
}

/** The lines of a table, with their options. */
export function LinesPanel({ table, marked = "", pick }: LinesPanelProps) {
  const { name, title } = table.head;
  const choices = choicesOf(useValue(plotChoices), name);
  const { zoom, ...lineChoices } = choices;
  const key = JSON.stringify(lineChoices, (_name, value: unknown) =>
    value instanceof Map ? [...(value as Map<unknown, unknown>)] : value,
  );
  const isSelected = useValue(selectedNames);
  const lines = useMemo(() => {
    const built = buildLines(table, effectiveChoices(table, choices));
    for (const line of built.lines)
      line.isMarked = marked ? line.group === marked : isSelectedLabel(line.label, isSelected);
    return built;
  }, [table, key, isSelected, marked]);
  const view = useMemo(
    () => buildView(lines, table.head.columns, effectiveChoices(table, choices), zoom),
    [lines, zoom],
  );
  return (
    <div class="plot-lines">
      <PlotOptions table={table} choices={choices} view={view} />
      <div class="plot-area">
        <Plot name={name} title={title || name} view={view} zoomed={!!(zoom.x || zoom.y)} pick={pick} />
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
