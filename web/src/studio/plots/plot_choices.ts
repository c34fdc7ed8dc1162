// What the reader chose for the plot of each table; it outlives the tab.
import type { Column } from "../messages";
import { Signal } from "../signal";
import type { Table } from "../tables/table_rows";
import { plottable, type LineChoices } from "./plot_lines";
import { FULL_ZOOM, type Limits, type ViewOptions, type Zoom } from "./plot_view";

/** Choices of one table's plot; the columns are those that differ from what the table says. */
export interface PlotChoices {
  x: string | null; // null: as the table says, as below
  legend: string | null; // "": none
  error: string | null; // of all columns; "": none
  switched: ReadonlyMap<string, boolean>; // columns switched by hand
  limits: Limits; // typed by hand
  smoothing: number;
  logX: boolean;
  logY: boolean;
  separateAxes: boolean; // each column has a y axis of its own
  zoom: Zoom;
}

const DEFAULT_CHOICES: PlotChoices = {
  x: null, legend: null, error: null, switched: new Map(), limits: new Map(), smoothing: 0, logX: false, logY: false, separateAxes: false, zoom: FULL_ZOOM,
};

/** By the table's name. */
export const plotChoices = new Signal<ReadonlyMap<string, PlotChoices>>(new Map());

/** The choices for a table. */
export function choicesOf(all: ReadonlyMap<string, PlotChoices>, name: string): PlotChoices {
  return all.get(name) ?? DEFAULT_CHOICES;
}

/** Change some of them. */
export function updateChoices(name: string, part: Partial<PlotChoices>): void {
  const current = plotChoices.get();
  plotChoices.set(new Map(current).set(name, { ...choicesOf(current, name), ...part }));
}

const COUNTER = /^(run|epoch|trial|step|batch|seed)$/i;

/** Whether a column is drawn: as switched, else as the table says; but not counters, nor another column's error bars. */
export function isColumnOn(table: Table, choices: PlotChoices, { name, plotted }: Column): boolean {
  const isError = choices.error === null ? table.head.columns.some(({ error }) => error === name) : choices.error === name;
  return choices.switched.get(name) ?? (plotted && !isError && !COUNTER.test(name));
}

/** What is drawn for a table. */
export function effectiveChoices(table: Table, choices: PlotChoices): LineChoices & ViewOptions {
  const { x, legend, error, smoothing, logX, logY, separateAxes, limits } = choices;
  const columns = plottable(table).filter((column) => isColumnOn(table, choices, column)).map(({ name }) => name);
  return { x: x ?? table.head.x, legend: legend ?? table.head.legend, error, columns, smoothing, logX, logY, separateAxes, limits };
}
