// What is wrong with each layer: values that are no numbers, and what the watch's rules found, in a word each.
import type { AlertSeen } from "../messages";

/** What is wrong with one layer. */
export interface LayerFault {
  words: string[]; // "NaN", "dead", "exploding": each once
  others: number; // alerts of other rules
}

// By the rule's name (`monitor/rules`); alerts of other rules are counted.
const RULE_WORDS: Record<string, string> = {
  nan_inf: "NaN",
  all_zero: "all zero",
  dead_relu: "dead",
  saturation: "saturated",
  exploding_gradient: "exploding",
  vanishing_gradient: "vanishing",
};

/** The faults of what alerts name, layers, modules or parameters; alerts of later steps do not count. */
export function faultsOf(alerts: readonly AlertSeen[], step: number): Map<string, LayerFault> {
  const faults = new Map<string, LayerFault>();
  for (const { layer, severity, rule, step: since } of alerts) {
    if (!layer || severity === "info" || since > step) continue;
    const fault = faults.get(layer) ?? { words: [], others: 0 };
    const word = RULE_WORDS[rule];
    if (!word) fault.others++;
    else if (!fault.words.includes(word)) fault.words.push(word);
    faults.set(layer, fault);
  }
  return faults;
}

/** The faults of several names as one. */
export function joinFaults(faults: ReadonlyMap<string, LayerFault>, names: Iterable<string>): LayerFault {
  const words = new Set<string>();
  let others = 0;
  for (const name of names) {
    const fault = faults.get(name);
    fault?.words.forEach((word) => words.add(word));
    others += fault?.others ?? 0;
  }
  return { words: [...words], others };
}

/** "dead · 2 alerts"; "" if nothing is wrong. */
export function faultText({ words, others }: LayerFault): string {
  const count = others ? `${others} alert${others > 1 ? "s" : ""}` : "";
  return [...words, count].filter(Boolean).join(" · ");
}

/** A layer with NaN or infinities, and everything in it that an alert may name. */
export interface BadLayer {
  name: string;
  names: readonly string[];
}

/** The order in which what is shown was computed, where it is a single pass; "" where training goes on. */
export type PassOrder = "forward" | "backward" | "";

/** Where NaN or infinities began. */
export interface Origin {
  name: string;
  word: string; // "first"; "first seen" where the look before is not known to have had none
}

/** The layer where NaN or infinities began in time, as far as it was looked at; `bad` is in order of execution. */
export function originOf(
  bad: readonly BadLayer[],
  alerts: readonly AlertSeen[],
  step: number,
  order: PassOrder,
): Origin | null {
  const inTime = alerts.filter(({ rule, step: since }) => rule === "nan_inf" && since <= step).sort(byStep);
  for (const alert of inTime) {
    const layer = bad.find(({ names }) => names.includes(alert.layer));
    if (layer) return { name: layer.name, word: alert.began_here ? "first" : "first seen" };
  }
  const first = order === "backward" ? bad[bad.length - 1] : bad[0];
  return order && first ? { name: first.name, word: "first" } : null;
}

/** The order in which a source's values of a variable were computed. */
export function passOrder(source: string, variable: string): PassOrder {
  if (source !== "pass") return "";
  return variable === "Grad" ? "backward" : "forward";
}

function byStep(a: AlertSeen, b: AlertSeen): number {
  return a.step - b.step;
}
