// What is wrong with the slabs that are shown: values that are no numbers, and alerts about what is inside.
import type { AlertSeen } from "../../messages";
import { NON_FINITE_NAMES } from "../../non_finite";
import { nonFiniteIn, type Frame } from "../values/value_ranges";
import { walk, type TreeNode } from "./scene_tree";
import type { VisibleNet } from "./visible_net";

/** A slab's fault. */
export interface Fault {
  text: string; // "NaN", "first NaN", "2 alerts"
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
  const alerted = countAlerts(alerts, step);
  let isFirst = true;
  for (const { layer } of visible.net.layers) {
    const frame = frames.get(layer.name);
    const kinds = (frame ? nonFiniteIn([frame]) : []).map((kind) => NON_FINITE_NAMES[kind]);
    const count = namesIn(visible.items.get(layer.name)?.node ?? null, layer.name, layer.also).reduce(
      (sum, name) => sum + (alerted.get(name) ?? 0),
      0,
    );
    if (!kinds.length && !count) continue;
    const values = kinds.length ? `${isFirst ? "first " : ""}${kinds.join(", ")}` : "";
    const words = count ? `${count} alert${count > 1 ? "s" : ""}` : "";
    faults.set(layer.name, { text: [values, words].filter(Boolean).join(" · "), isFirst: isFirst && kinds.length > 0 });
    if (kinds.length) isFirst = false;
  }
  return faults;
}

// How many alerts each layer or parameter has.
function countAlerts(alerts: readonly AlertSeen[], step: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { layer, severity, step: since } of alerts) {
    if (layer && severity !== "info" && since <= step) counts.set(layer, (counts.get(layer) ?? 0) + 1);
  }
  return counts;
}

// Everything in a slab that an alert may name.
function namesIn(node: TreeNode | null, name: string, also: readonly string[]): string[] {
  if (!node) return [name, ...also];
  const leaves = [...walk(node)].filter(({ sort }) => sort === "layer").map(({ face }) => face!.layer);
  const modules = [...walk(node)].filter(({ sort }) => sort === "module").map(({ key }) => key);
  return [...new Set([...modules, ...leaves.flatMap((layer) => [layer.name, ...layer.also])])];
}
