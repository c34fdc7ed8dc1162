// The user's plot choices per table; they outlive the tab.
import type { Column } from "../messages";
import { Signal } from "../signal";
import type { Table } from "../tables/table_rows";
import { plottable, type LineChoices } from "./plot_lines";
import { FULL_ZOOM, type Limits, type ViewOptions, type Zoom } from "./plot_view";

/** Choices for one table's plot; null fields follow the table's defaults. */
export interface PlotChoices {
  x: string | null; // null: the table's default, as below
  legend: string | null; // "": none
  error: string | null; // for all columns; "": none
  switched: ReadonlyMap<string, boolean>; // columns switched on or off by the user
  limits: Limits; // entered by the user
  smoothing: number;
  logX: boolean;
  logY: boolean;
  separateAxes: boolean; // each column has its own y axis
  zoom: Zoom;
}

const DEFAULT_CHOICES: PlotChoices = {
  x: null,
  legend: null,
  error: null,
  switched: new Map(),
  limits: new Map(),
  smoothing: 0,
  logX: false,
  logY: false,
  separateAxes: false,
  zoom: FULL_ZOOM,
};

/** Choices by table name. */
export const plotChoices = new Signal<ReadonlyMap<string, PlotChoices>>(new Map());

/** The choices of a table. */
export function choicesOf(all: ReadonlyMap<string, PlotChoices>, name: string): PlotChoices {
  return all.get(name) ?? DEFAULT_CHOICES;
}

/** Update some of a table's choices. */
export function updateChoices(name: string, part: Partial<PlotChoices>): void {
  const current = plotChoices.get();
  plotChoices.set(new Map(current).set(name, { ...choicesOf(current, name), ...part }));
}

const COUNTER = /^(run|epoch|trial|step|batch|seed)$/i;

/** Whether a column is drawn: as switched by the user, else as the table says, except counters and error columns. */
export function isColumnOn(table: Table, choices: PlotChoices, { name, plotted }: Column): boolean {
  const isError =
    choices.error === null ? table.head.columns.some(({ error }) => error === name) : choices.error === name;
  return choices.switched.get(name) ?? (plotted && !isError && !COUNTER.test(name));
}

/** The choices in effect for a table, defaults filled in. */
export function effectiveChoices(table: Table, choices: PlotChoices): LineChoices & ViewOptions {
  const { x, legend, error, smoothing, logX, logY, separateAxes, limits } = choices;
  const columns = plottable(table)
    .filter((column) => isColumnOn(table, choices, column))
    .map(({ name }) => name);
  return {
    x: x ?? table.head.x,
    legend: legend ?? table.head.legend,
    error,
    columns,
    smoothing,
    logX,
    logY,
    separateAxes,
    limits,
  };
}
