// Beside the plot: which columns are drawn, and how.
import { useId } from "preact/hooks";

import type { Column } from "../messages";
import { useValue } from "../signal";
import type { Table } from "../tables/table_rows";
import { theme } from "../theme";
import { choose, isOn, type PlotChoices } from "./plot_choices";
import { plottable } from "./plot_lines";
import { stroke } from "./line_palette";
import { AxisLimits } from "./axis_limits";
import { WHOLE, type View } from "./plot_view";

interface Props {
  table: Table;
  choices: PlotChoices;
  view: View;
}

/** The options. */
export function Options({ table, choices, view }: Props) {
  const { name } = table.head;
  const columns = plottable(table);
  const all = (wanted: boolean) => () => choose(name, { on: new Map(columns.map((column) => [column.name, wanted])) });
  return (
    <aside class="plot-options" aria-label="Plot options">
      <fieldset>
        <legend>Columns</legend>
        <div class="row small">
          <button class="link" onClick={all(true)}>
            All
          </button>
          <button class="link" onClick={all(false)}>
            None
          </button>
        </div>
        <ul class="columns">
          {columns.map((column) => (
            <li key={column.name}>
              <label class="check">
                <input
                  type="checkbox"
                  checked={isOn(table, choices, column)}
                  onChange={({ currentTarget }) => choose(name, { on: new Map(choices.on).set(column.name, currentTarget.checked) })}
                />
                <Swatch view={view} column={column.name} />
                <span class="name" title={column.name}>{column.name}</span>
              </label>
            </li>
          ))}
        </ul>
      </fieldset>
      <Axes table={table} choices={choices} columns={columns} />
      <AxisLimits name={name} choices={choices} view={view} />
    </aside>
  );
}

function Swatch({ view, column }: { view: View; column: string }) {
  const now = useValue(theme);
  const line = view.lines.find((line) => line.column === column);
  return <span class="swatch" aria-hidden="true" style={{ background: line ? stroke(line.number, now).colour : "transparent" }} />;
}

function Axes({ table, choices, columns }: { table: Table; choices: PlotChoices; columns: Column[] }) {
  const { name, x, legend } = table.head;
  const numbers = table.head.columns.filter((column) => column.name === x || columns.includes(column));
  const sorts = table.head.columns.filter(({ type }) => type === "text" || type === "int");
  const named = (some: Column[]): Option[] => some.map((column) => [column.name, column.name]);
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
          onInput={({ currentTarget }) => choose(name, { smoothing: Number(currentTarget.value) })}
        />
      </label>
      <Pick label="x axis" now={choices.x ?? x} options={[...named(numbers), ["", "row"]]} set={(x) => choose(name, { x, zoom: WHOLE })} />
      <Pick label="Line for each" now={choices.legend ?? legend} options={[["", "no column"], ...named(sorts)]} set={(legend) => choose(name, { legend })} />
      <Pick label="Error bars" now={choices.error} options={[[null, "as the table says"], ["", "none"], ...named(columns)]} set={(error) => choose(name, { error })} />
      <Flag label="Logarithmic x" on={choices.logX} set={(logX) => choose(name, { logX, zoom: { x: null, y: null } })} />
      <Flag label="Logarithmic y" on={choices.logY} set={(logY) => choose(name, { logY, zoom: { ...choices.zoom, y: null } })} />
      <Flag label="Own y axis each" on={choices.apart} set={(apart) => choose(name, { apart, zoom: { ...choices.zoom, y: null } })} />
    </fieldset>
  );
}

type Option = [value: string | null, text: string];

function Pick({ label, now, options, set }: { label: string; now: string | null; options: Option[]; set: (value: string | null) => void }) {
  const id = useId();
  const at = options.findIndex(([value]) => value === now);
  return (
    <div class="stacked">
      <label for={id}>{label}</label>
      <select id={id} value={String(at)} onChange={({ currentTarget }) => set(options[Number(currentTarget.value)][0])}>
        {options.map(([, text], index) => (
          <option key={index} value={String(index)}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

function Flag({ label, on, set }: { label: string; on: boolean; set: (on: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={on} onChange={({ currentTarget }) => set(currentTarget.checked)} />
      {label}
    </label>
  );
}
