// What the inspector looks at. The selection is read here and nowhere else in this folder.
import type { Layer, TensorHead } from "../messages";
import { loadItem, saveItem } from "../local_storage";
import { Signal, useValue, type Store } from "../store";

const WIDE_KEY = "torcheer.inspector.wide";

/** Whether the panel takes half of the window. */
export const isWide = new Signal(loadItem(WIDE_KEY) === "yes");
isWide.subscribe((wide) => saveItem(WIDE_KEY, wide ? "yes" : "no"));

/** The tensor that was chosen last, by what it is: the next layer shows the same, if it has it. */
export const chosenTensor = new Signal<{ variable: string; part: string }>({ variable: "", part: "" });

/** The selected layer; null without one. */
export function useInspectedLayer(store: Store): Layer | null {
  const selection = useValue(store.selection);
  const net = useValue(store.net);
  return net?.layers.find(({ layer }) => layer.name === selection?.layer)?.layer ?? null;
}

/** The last part of a parameter's name: "weight". */
export function partOf({ parameter }: Pick<TensorHead, "parameter">): string {
  return parameter.slice(parameter.lastIndexOf(".") + 1);
}

/** The tensor to show of these: the one chosen last, the network's variable, or the first that is there. */
export function pickTensor(
  tensors: readonly TensorHead[],
  chosen: { variable: string; part: string },
  variable: string,
): TensorHead | null {
  const isChosen = (head: TensorHead): boolean => head.variable === chosen.variable && partOf(head) === chosen.part;
  return (
    tensors.find(isChosen) ??
    tensors.find((head) => !head.parameter && head.variable === variable && !head.why) ??
    tensors.find(({ why }) => !why) ??
    tensors[0] ??
    null
  );
}
