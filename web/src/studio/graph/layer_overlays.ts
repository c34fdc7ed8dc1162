// Numbers to colour boxes by: what the drawing brings of a recorded pass, and what the log says of each layer.
import { faultsOf, joinFaults } from "../faults/layer_faults";
import type { AlertSeen, Net } from "../messages";
import type { Table } from "../tables/table_rows";
import { variableOf } from "../tables/table_groups";

export type Overlay = (number | string | null)[]; // per item; null: unknown

/** What the overlays are made from. */
export interface OverlayFacts {
  net: Net | null;
  tables: ReadonlyMap<string, Table>;
  alerts: readonly AlertSeen[];
  step: number; // later ones do not count
}

/** The overlays that the log gives, by quantity; `layers` is the layer of each item. */
export function logOverlays(layers: readonly string[], facts: OverlayFacts): Record<string, Overlay> {
  const overlays: Record<string, Overlay> = {};
  for (const [quantity, values] of Object.entries(layerValues(facts))) {
    if (!values.size) continue;
    const seen = new Set<string>();
    overlays[quantity] = layers.map((layer) => {
      if (seen.has(layer)) return null; // of several items of a layer the first has its number
      seen.add(layer);
      return values.get(layer) ?? null;
    });
  }
  return overlays;
}

/** The numbers that the log, or a comparison, has of layers, by quantity. */
export function layerValues({ net, tables, alerts, step }: OverlayFacts): Record<string, Map<string, number | string>> {
  const [gradient, update, nan, alert] = [0, 1, 2, 3].map(() => new Map<string, number | string>());
  const byName = tablesByLayer(tables);
  const [difference, differences] = [new Map<string, number | string>(), relativeDifferences(tables)];
  const faults = faultsOf(alerts, step);
  for (const { layer } of net?.layers ?? []) {
    const names = [layer.name, ...layer.also];
    const own = names.flatMap((name) => byName.get(name) ?? []);
    const norms = (variable: string): number[] =>
      own.filter((table) => variableOf(table) === variable).flatMap((table) => lastNumber(table, "norm", step));
    const grads = byName.get(layer.name)?.filter((table) => variableOf(table) === "grad") ?? [];
    const gradients = grads.flatMap((table) => lastNumber(table, "norm", step));
    if (gradients.length) gradient.set(layer.name, encode(gradients[0]));
    if (norms("update").length) update.set(layer.name, encode(Math.hypot(...norms("update"))));
    const bad = own.flatMap((table) => [...lastNumber(table, "nans", step), ...lastNumber(table, "infs", step)]);
    if (bad.length) nan.set(layer.name, bad.some((count) => count > 0) ? "NaN" : 0);
    const fault = joinFaults(faults, names);
    const count = fault.others + fault.words.length;
    if (faults.size) alert.set(layer.name, count);
    const differs = names.flatMap((name) => differences.get(name) ?? []);
    if (differs.length) difference.set(layer.name, encode(Math.max(...differs))); // a NaN among them is one
  }
  return { gradient_norm: gradient, update, nan, alert, difference };
}

// The largest difference of each row of a comparison, relative to the first's largest number; NaN where one has NaN or ∞.
function relativeDifferences(tables: ReadonlyMap<string, Table>): Map<string, number> {
  const differences = new Map<string, number>();
  const { columns, count = 0 } = tables.get("differences") ?? {};
  for (let row = 0; row < count; row++) {
    const [layer, relative, bad] = ["Layer", "Relative", "NaN or ∞"].map((name) => columns?.[name]?.[row]);
    const value = Number(bad) > 0 ? NaN : relative;
    if (typeof layer === "string" && typeof value === "number") differences.set(layer, value);
  }
  return differences;
}

function tablesByLayer(tables: ReadonlyMap<string, Table>): Map<string, Table[]> {
  const byName = new Map<string, Table[]>();
  for (const table of tables.values()) {
    const { layer } = table.head;
    if (layer) byName.set(layer, [...(byName.get(layer) ?? []), table]);
  }
  return byName;
}

// The number of a column in the last row up to a step; none if there is no such row.
function lastNumber({ columns, count }: Table, name: string, step: number): number[] {
  const steps = columns.Step;
  for (let row = count - 1; row >= 0; row--) {
    if (steps && Number(steps[row]) > step) continue;
    const value = columns[name]?.[row];
    return typeof value === "number" ? [value] : [];
  }
  return [];
}

// As Python writes it: the colour scale knows these names.
function encode(value: number): number | string {
  return Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? value : "Infinity";
}
