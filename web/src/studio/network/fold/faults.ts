// What is wrong with the slabs that are shown: values that are no numbers, and alerts about what is inside.
import type { AlertSeen } from "../../messages";
import { faultsOf, faultText, joinFaults } from "../../faults/layer_faults";
import { NON_FINITE_NAMES } from "../../non_finite";
import { nonFiniteIn, type Frame } from "../values/value_ranges";
import { walk, type TreeNode } from "./scene_tree";
import type { VisibleNet } from "./visible_net";

/** A slab's fault. */
export interface Fault {
  text: string; // "NaN", "first NaN", "dead · 2 alerts"
  isFirst: boolean; // the first slab, in the order in which they run, that has NaN or infinities
}

/** The faults of what is shown, by the layer's name; alerts of later steps do not count. */
export function findFaults(
  visible: VisibleNet,
  frames: ReadonlyMap<string, Frame>,
  alerts: readonly AlertSeen[],
  step: number,
): Map<string, Fault> {
  const faults = new Map<string, Fault>();
  const alerted = faultsOf(alerts, step);
  let isFirst = true;
  for (const { layer } of visible.net.layers) {
    const frame = frames.get(layer.name);
    const kinds = (frame ? nonFiniteIn([frame]) : []).map((kind) => NON_FINITE_NAMES[kind]);
    const names = namesIn(visible.items.get(layer.name)?.node ?? null, layer.name, layer.also);
    const fault = joinFaults(alerted, names);
    if (kinds.length) fault.words = fault.words.filter((word) => word !== "NaN"); // it is seen, so not said twice
    const values = kinds.length ? `${isFirst ? "first " : ""}${kinds.join(", ")}` : "";
    const text = [values, faultText(fault)].filter(Boolean).join(" · ");
    if (!text) continue;
    faults.set(layer.name, { text, isFirst: isFirst && kinds.length > 0 });
    if (kinds.length) isFirst = false;
  }
  return faults;
}

/** Of layers with NaN or infinities, which: "NaN, ∞". */
export function nonFiniteLayers(frames: ReadonlyMap<string, Frame>): Map<string, string> {
  const kinds = [...frames].map(([layer, frame]): [string, string] => [
    layer,
    nonFiniteIn([frame])
      .map((kind) => NON_FINITE_NAMES[kind])
      .join(", "),
  ]);
  return new Map(kinds.filter(([, text]) => text));
}

// Everything in a slab that an alert may name.
function namesIn(node: TreeNode | null, name: string, also: readonly string[]): string[] {
  if (!node) return [name, ...also];
  const leaves = [...walk(node)].filter(({ sort }) => sort === "layer").map(({ face }) => face!.layer);
  const modules = [...walk(node)].filter(({ sort }) => sort === "module").map(({ key }) => key);
  return [...new Set([...modules, ...leaves.flatMap((layer) => [layer.name, ...layer.also])])];
}
