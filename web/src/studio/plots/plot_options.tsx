// Plot options: which columns are drawn, and how.
import { useId } from "preact/hooks";

import type { Column } from "../messages";
import { useValue } from "../signal";
import type { Table } from "../tables/table_rows";
import { theme } from "../theme";
import { updateChoices, isColumnOn, type PlotChoices } from "./plot_choices";
import { plottable } from "./plot_lines";
import { lineStroke } from "./line_palette";
import { AxisLimits } from "./axis_limits";
import { FULL_ZOOM, type PlotView } from "./plot_view";

interface PlotOptionsProps {
  table: Table;
  choices: PlotChoices;
  view: PlotView;
}

/** The options beside the plot. */
export function PlotOptions({ table, choices, view }: PlotOptionsProps) {
  const { name } = table.head;
  const columns = plottable(table);
  const switchAll = (isOn: boolean) => () =>
    updateChoices(name, { switched: new Map(columns.map((column) => [column.name, isOn])) });
  return (
    <aside class="plot-options" aria-label="Plot options">
      <fieldset>
        <legend>Columns</legend>
        <div class="row small">
          <button class="link" onClick={switchAll(true)}>
            All
          </button>
          <button class="link" onClick={switchAll(false)}>
            None
          </button>
        </div>
        <ul class="columns">
          {columns.map((column) => (
            <li key={column.name}>
              <label class="check">
                <input
                  type="checkbox"
                  checked={isColumnOn(table, choices, column)}
                  onChange={({ currentTarget }) =>
                    updateChoices(name, { switched: new Map(choices.switched).set(column.name, currentTarget.checked) })
                  }
                />
                <LineSwatch view={view} column={column.name} />
                <span class="name" title={column.name}>
                  {column.name}
                </span>
              </label>
            </li>
          ))}
        </ul>
      </fieldset>
      <DrawingOptions table={table} choices={choices} columns={columns} />
      <AxisLimits name={name} choices={choices} view={view} />
    </aside>
  );
}

function LineSwatch({ view, column }: { view: PlotView; column: string }) {
  const themeName = useValue(theme);
  const line = view.lines.find((line) => line.column === column);
  return (
    <span
      class="swatch"
      aria-hidden="true"
      style={{ background: line ? lineStroke(line.number, themeName).colour : "transparent" }}
    />
  );
}

function DrawingOptions({ table, choices, columns }: { table: Table; choices: PlotChoices; columns: Column[] }) {
  const { name, x, legend } = table.head;
  const xColumns = table.head.columns.filter((column) => column.name === x || columns.includes(column));
  const legendColumns = table.head.columns.filter(({ type }) => type === "text" || type === "int");
  const toOptions = (choices: Column[]): SelectOption[] => choices.map((column) => [column.name, column.name]);
  return (
    <fieldset>
      <legend>Drawing</legend>
      <label class="stacked">
        <span>
          Smoothing <b>{choices.smoothing.toFixed(2)}</b>
        </span>
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={choices.smoothing}
          onInput={({ currentTarget }) => updateChoices(name, { smoothing: Number(currentTarget.value) })}
        />
      </label>
      <SelectField
        label="x axis"
        current={choices.x ?? x}
        options={[...toOptions(xColumns), ["", "row"]]}
        set={(x) => updateChoices(name, { x, zoom: FULL_ZOOM })}
      />
      <SelectField
        label="Line for each"
        current={choices.legend ?? legend}
        options={[["", "no column"], ...toOptions(legendColumns)]}
        set={(legend) => updateChoices(name, { legend })}
      />
      <SelectField
        label="Error bars"
        current={choices.error}
        options={[[null, "as the table says"], ["", "none"], ...toOptions(columns)]}
        set={(error) => updateChoices(name, { error })}
      />
      <Checkbox
        label="Logarithmic x"
        on={choices.logX}
        set={(logX) => updateChoices(name, { logX, zoom: { x: null, y: null } })}
      />
      <Checkbox
        label="Logarithmic y"
        on={choices.logY}
        set={(logY) => updateChoices(name, { logY, zoom: { ...choices.zoom, y: null } })}
      />
      <Checkbox
        label="Own y axis each"
        on={choices.separateAxes}
        set={(separateAxes) => updateChoices(name, { separateAxes, zoom: { ...choices.zoom, y: null } })}
      />
    </fieldset>
  );
}

type SelectOption = [value: string | null, text: string];

function SelectField({
  label,
  current,
  options,
  set,
}: {
  label: string;
  current: string | null;
  options: SelectOption[];
  set: (value: string | null) => void;
}) {
  const id = useId();
  const index = options.findIndex(([value]) => value === current);
  return (
    <div class="stacked">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={String(index)}
        onChange={({ currentTarget }) => set(options[Number(currentTarget.value)][0])}
      >
        {options.map(([, text], index) => (
          <option key={index} value={String(index)}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

function Checkbox({ label, on, set }: { label: string; on: boolean; set: (on: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={on} onChange={({ currentTarget }) => set(currentTarget.checked)} />
      {label}
    </label>
  );
}
