// The tables of many watched layers, grouped: the run's own, then layers by the module that they are in.
import type { Table } from "./table_rows";

export interface TableGroup {
  label: string;
  choices: { value: string; text: string }[];
}

const LAYER = "layer:";

/** The value that stands for a layer in the list of tables. */
export function layerKey(layer: string): string {
  return LAYER + layer;
}

/** What a table is called. */
export function titleOf({ head }: Table): string {
  return head.title || head.name;
}

/** Of a layer's table, which of its variables it is. */
export function variableOf({ head }: Table): string {
  return head.name.slice(head.layer.length + 1);
}

/** The choices by group, and the tables of the chosen table's layer. */
export function groupByLayer(all: Table[], chosen: Table): { groups: TableGroup[]; inLayer: Table[] } {
  const groups = new Map<string, TableGroup>();
  const layers = new Set<string>();
  for (const table of all) {
    const { layer, name } = table.head;
    if (layers.has(layer)) continue;
    if (layer) layers.add(layer);
    const label = layer ? topModule(layer) : "Tables";
    const group = groups.get(label) ?? { label, choices: [] };
    group.choices.push(
      layer ? { value: layerKey(layer), text: layer } : { value: name, text: `${titleOf(table)} (${table.count})` },
    );
    groups.set(label, group);
  }
  const inLayer = chosen.head.layer ? all.filter(({ head }) => head.layer === chosen.head.layer) : [];
  return { groups: [...groups.values()], inLayer };
}

/** The name of the table for a choice; of a layer, the variable that was shown before if it has that one. */
export function tableFor(all: Table[], before: Table, value: string): string {
  if (!value.startsWith(LAYER)) return value;
  const inLayer = all.filter(({ head }) => head.layer === value.slice(LAYER.length));
  const same = before.head.layer ? inLayer.find((table) => variableOf(table) === variableOf(before)) : undefined;
  return (same ?? inLayer[0]).head.name;
}

function topModule(layer: string): string {
  return layer.split(".")[0];
}
