// Which names in tables and plots belong to the selected layer or module.
import type { Net } from "./messages";
import { Signal } from "./signal";
import type { Selection, Store } from "./store";

export type IsSelected = (name: string) => boolean;

const NOTHING: IsSelected = () => false;

/** Whether a name is the selected layer's, one of its parts', or in the selected module. */
export const selectedNames = new Signal<IsSelected>(NOTHING);

/** Keep `selectedNames` up to date. */
export function followSelection(store: Store): void {
  const update = (): void => selectedNames.set(namesOf(store.net.get(), store.selection.get()));
  for (const signal of [store.net, store.selection]) signal.subscribe(update);
}

/** The rule of a selection; a name may leave out the model that the network's has, or have one more: "net.conv1". */
export function namesOf(net: Net | null, selection: Selection | null): IsSelected {
  if (!selection) return NOTHING;
  const layer = net?.layers.find((placed) => placed.layer.name === selection.layer)?.layer;
  const names = new Set([selection.layer, ...(layer?.also ?? [])]);
  const module = selection.module ? `${selection.module}.` : null;
  return (name) => {
    if (names.has(name) || name === selection.module || (module && name.startsWith(module))) return true;
    return withoutModel(name) === selection.layer || withoutModel(selection.layer) === name;
  };
}

// "net.conv1" is "conv1"; a number alone, as of "features.0", may be anything.
function withoutModel(name: string): string | null {
  const rest = name.slice(name.indexOf(".") + 1);
  return rest !== name && /^[A-Za-z_]/.test(rest) ? rest : null;
}

/** Whether a line of a plot is the selection's: its label has a name of it, "grad · conv1" or "conv1/norm". */
export function isSelectedLabel(label: string, isSelected: IsSelected): boolean {
  return label.split(/[\s·/]+/).some((word) => word !== "" && isSelected(word));
}
