// Beside the plot: which columns are drawn, and how.
import type { Column } from "../messages";
import { useValue } from "../signal";
import type { Table } from "../tables/rows";
import { theme } from "../theme";
import { choose, isOn, type PlotChoices } from "./choices";
import { plottable } from "./lines";
import { stroke } from "./palette";
import type { View } from "./view";

interface Props {
  table: Table;
  choices: PlotChoices;
  view: View;
}

/** The options. */
export function Options({ table, choices, view }: Props) {
  const { name } = table.head;
  const columns = plottable(table);
  const all = (wanted: boolean) => () => choose(name, { on: Object.fromEntries(columns.map((column) => [column.name, wanted])) });
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
                  onChange={({ currentTarget }) => choose(name, { on: { ...choices.on, [column.name]: currentTarget.checked } })}
                />
                <Swatch view={view} column={column.name} />
                <span class="name" title={column.name}>{column.name}</span>
              </label>
            </li>
          ))}
        </ul>
      </fieldset>
      <Axes table={table} choices={choices} columns={columns} />
    </aside>
  );
}

function Swatch({ view, column }: { view: View; column: string }) {
  const now = useValue(theme);
  const line = view.lines.find((line) => line.column === column);
  return <span class="swatch" aria-hidden="true" style={{ background: line ? stroke(line.number, now).colour : "transparent" }} />;
}

function Axes({ table, choices, columns }: { table: Table; choices: PlotChoices; columns: Column[] }) {
  const { name, x } = table.head;
  const names = [...new Set([x, ...columns.map((column) => column.name)].filter(Boolean))];
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
      <div class="stacked">
        <label for="plot-x">x axis</label>
        <select id="plot-x" value={choices.x ?? x} onChange={({ currentTarget }) => choose(name, { x: currentTarget.value, zoom: { x: null, y: null } })}>
          {names.map((column) => (
            <option key={column} value={column}>
              {column}
            </option>
          ))}
          <option value="">row</option>
        </select>
      </div>
      <Flag label="Logarithmic x" on={choices.logX} set={(logX) => choose(name, { logX, zoom: { x: null, y: null } })} />
      <Flag label="Logarithmic y" on={choices.logY} set={(logY) => choose(name, { logY, zoom: { ...choices.zoom, y: null } })} />
      <Flag label="Own y axis each" on={choices.apart} set={(apart) => choose(name, { apart, zoom: { ...choices.zoom, y: null } })} />
    </fieldset>
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
