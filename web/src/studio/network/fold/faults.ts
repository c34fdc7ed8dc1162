// What is wrong with the slabs that are shown: values that are no numbers, and alerts about what is inside.
import type { AlertSeen } from "../../messages";
import { faultsOf, faultText, joinFaults, originOf, type PassOrder } from "../../faults/layer_faults";
import { NON_FINITE_NAMES } from "../../non_finite";
import { nonFiniteIn, type Frame } from "../values/value_ranges";
import { walk, type TreeNode } from "./scene_tree";
import type { VisibleNet } from "./visible_net";

/** A slab's fault. */
export interface Fault {
  text: string; // "NaN", "first NaN", "first seen NaN", "dead · 2 alerts"
  isFirst: boolean; // the slab where NaN or infinities began, as far as it was looked at
}

/** The faults of what is shown, by the layer's name; alerts of later steps do not count. */
export function findFaults(
  visible: VisibleNet,
  frames: ReadonlyMap<string, Frame>,
  alerts: readonly AlertSeen[],
  step: number,
  order: PassOrder,
): Map<string, Fault> {
  const faults = new Map<string, Fault>();
  const alerted = faultsOf(alerts, step);
  const layers = visible.net.layers.map(({ layer }) => ({
    name: layer.name,
    names: namesIn(visible.items.get(layer.name)?.node ?? null, layer.name, layer.also),
    kinds: kindsIn(frames.get(layer.name)),
  }));
  const bad = layers.filter(({ kinds }) => kinds);
  const origin = originOf(bad, alerts, step, order);
  for (const { name, names, kinds } of layers) {
    const fault = joinFaults(alerted, names);
    if (kinds) fault.words = fault.words.filter((word) => word !== "NaN"); // it is seen, so not said twice
    const isFirst = origin?.name === name;
    const values = isFirst ? `${origin.word} ${kinds}` : kinds;
    const text = [values, faultText(fault)].filter(Boolean).join(" · ");
    if (text) faults.set(name, { text, isFirst });
  }
  return faults;
}

// "NaN, ∞"; "" if all numbers are finite.
function kindsIn(frame: Frame | undefined): string {
  const kinds = frame ? nonFiniteIn([frame]) : [];
  return kinds.map((kind) => NON_FINITE_NAMES[kind]).join(", ");
}

/** Of layers with NaN or infinities, which: "NaN, ∞". */
export function nonFiniteLayers(frames: ReadonlyMap<string, Frame>): Map<string, string> {
  const kinds = [...frames].map(([layer, frame]): [string, string] => [layer, kindsIn(frame)]);
  return new Map(kinds.filter(([, text]) => text));
}

// Everything in a slab that an alert may name.
function namesIn(node: TreeNode | null, name: string, also: readonly string[]): string[] {
  if (!node) return [name, ...also];
  const leaves = [...walk(node)].filter(({ sort }) => sort === "layer").map(({ face }) => face!.layer);
  const modules = [...walk(node)].filter(({ sort }) => sort === "module").map(({ key }) => key);
  return [...new Set([...modules, ...leaves.flatMap((layer) => [layer.name, ...layer.also])])];
}
