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
