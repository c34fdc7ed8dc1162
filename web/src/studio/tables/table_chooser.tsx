// Which table is shown; the Plots and Tables tabs share the choice.
import { useEffect } from "preact/hooks";

import { faultsOf, faultText, type LayerFault } from "../faults/layer_faults";
import { plottable } from "../plots/plot_lines";
import { namesOf, selectedNames, type IsSelected } from "../selected_names";
import { Signal, useValue, type Store } from "../store";
import { groupByLayer, layerKey, tableFor, titleOf, variableOf } from "./table_groups";
import type { Table } from "./table_rows";

const chosenTable = new Signal("");
const TABLE_ORDER = [
  "train_epoch",
  "test_epoch",
  "test_trial",
  "run",
  "train_step",
  "patterns",
  "metric",
  "",
  "system",
]; // "": all others
const MAX_BUTTONS = 24; // a watch has a table for each layer and variable

/** The table to show: the chosen one, else the first log with rows; it stays when it is emptied for a new run. */
export function useTable(store: Store): { table: Table | null; all: Table[] } {
  const tables = useValue(store.tables);
  const name = useValue(chosenTable);
  const all = [...tables.values()].sort((a, b) => rank(a) - rank(b));
  const first = all.find((table) => table.count && plottable(table).length); // patterns are not a log, so they are not chosen first
  useEffect(() => {
    if (first && !tables.has(name)) chosenTable.set(first.head.name);
  }, [first?.head.name, tables.has(name)]);
  return { table: tables.get(name) ?? first ?? all[0] ?? null, all };
}

/** Whether the source is a table and nothing else. */
export function useTableOnly(store: Store): boolean {
  const tables = useValue(store.tables);
  const net = useValue(store.net);
  const { status, can } = useValue(store.state);
  const source = useValue(store.hello)?.source;
  return source === "live" && tables.size > 0 && !net && status === "idle" && !can.length;
}

function rank({ head }: Table): number {
  const index = TABLE_ORDER.indexOf(head.name);
  return index < 0 ? TABLE_ORDER.indexOf("") : index;
}

/** A row of buttons, one per table; of many tables a list of tables and layers, and the chosen layer's variables. */
export function TableChooser({ all, table, store }: { all: Table[]; table: Table; store: Store }) {
  const isSelected = useValue(selectedNames);
  useFollowedLayer(store, all, table);
  const choose = (name: string): void => {
    chosenTable.set(name);
    selectLayer(store, all.find(({ head }) => head.name === name)?.head.layer ?? "");
  };
  const faults = faultsOf(useValue(store.alerts), Infinity);
  const shared = { table, choose, isSelected, faults };
  if (all.length <= MAX_BUTTONS) return <TableButtons label="Table" tables={all} title={titleOf} {...shared} />;
  const { groups, inLayer } = groupByLayer(all, table);
  const value = table.head.layer ? layerKey(table.head.layer) : table.head.name;
  return (
    <div class="chooser">
      <select
        aria-label="Table"
        value={value}
        onChange={({ currentTarget }) => choose(tableFor(all, table, currentTarget.value))}
      >
        {groups.map(({ label, choices }) => (
          <optgroup key={label} label={label}>
            {choices.map((choice) => (
              <option key={choice.value} value={choice.value}>
                {[isSelected(choice.text) && "●", faults.has(choice.text) && "⚠", choice.text]
                  .filter(Boolean)
                  .join(" ")}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
      {inLayer.length > 0 && <TableButtons label="Variable" tables={inLayer} title={variableOf} {...shared} />}
    </div>
  );
}

interface TableButtonsProps {
  label: string;
  tables: Table[];
  table: Table;
  title: (table: Table) => string;
  choose: (name: string) => void;
  isSelected: IsSelected;
  faults: ReadonlyMap<string, LayerFault>;
}

// The table of a layer that is selected elsewhere, where a layer's is shown here.
function useFollowedLayer(store: Store, all: Table[], table: Table): void {
  const selection = useValue(store.selection);
  useEffect(() => {
    const isSelected = namesOf(store.net.get(), selection);
    if (!table.head.layer || isSelected(table.head.layer)) return;
    const target = all.find(({ head }) => head.layer !== "" && isSelected(head.layer));
    if (target) chosenTable.set(tableFor(all, table, layerKey(target.head.layer)));
  }, [selection]);
}

// A layer whose table is chosen is everybody's selection, if the network has it.
function selectLayer(store: Store, name: string): void {
  const layers = store.net.get()?.layers.map(({ layer }) => layer) ?? [];
  const layer = layers.find((candidate) => candidate.name === name || candidate.also.includes(name));
  if (layer && store.selection.get()?.layer !== layer.name) store.selection.set({ layer: layer.name, unit: 0 });
}

function TableButtons({ label, tables, table, title, choose, isSelected, faults }: TableButtonsProps) {
  const faultOf = (choice: Table): LayerFault | undefined => faults.get(choice.head.layer);
  return (
    <div class="segments" role="radiogroup" aria-label={label}>
      {tables.map((choice) => (
        <label
          key={choice.head.name}
          class={[
            choice.head.name === table.head.name && "on",
            isSelected(choice.head.layer) && "marked",
            faultOf(choice) && "faulty",
          ]
            .filter(Boolean)
            .join(" ")}
          title={faultOf(choice) && faultText(faultOf(choice)!)}
        >
          <input
            type="radio"
            name={label}
            checked={choice.head.name === table.head.name}
            onChange={() => choose(choice.head.name)}
          />
          {title(choice)} <span class="soft">{choice.count}</span>
        </label>
      ))}
    </div>
  );
}

/** Shown if there is no table at all. */
export function NoTables({ store, plural }: { store: Store; plural: string }) {
  const hello = useValue(store.hello);
  const isOne = hello?.source === "pass" || hello?.source === "file"; // it will never have any
  const reason = isOne
    ? `There are no ${plural} here: training, tl.live and tl.watch write runs with numbers over time.`
    : `Nothing recorded yet: ${plural} appear here when a run reports numbers.`;
  return <p class="empty">{hello ? reason : "Loading…"}</p>;
}
