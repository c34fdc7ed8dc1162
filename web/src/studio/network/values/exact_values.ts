// Exact values, asked for once each.
import type { Json } from "../../messages";
import type { Store } from "../../store";

export interface Exact {
  value: number | null; // null where it is no finite number, or not known
  text: string; // as it reads in full
  index: number[];
}

export interface Wanted {
  layer: string;
  unit: number;
  variable: string;
  item: number;
  moment: number;
  of: { layer: string; unit: number } | null; // whose weights
}

const MOST = 400;

/** The values that were asked for lately. */
export class Values {
  private readonly known = new Map<string, Promise<Exact>>();

  constructor(private readonly store: Store) {}

  ask(wanted: Wanted): Promise<Exact> {
    const key = JSON.stringify([wanted.layer, wanted.unit, wanted.variable, wanted.item, wanted.moment, wanted.of]);
    const found = this.known.get(key);
    if (found) return found;
    const { of, ...rest } = wanted;
    const question = { kind: "ask_value" as const, ...rest, of_layer: of?.layer ?? "", of_unit: of?.unit ?? -1 };
    const answer = this.store.ask(question).then(exactOf);
    this.known.set(key, answer);
    answer.catch(() => this.known.delete(key)); // the next one may be luckier
    if (this.known.size > MOST) this.known.delete(this.known.keys().next().value!);
    return answer;
  }

  clear(): void {
    this.known.clear();
  }
}

function exactOf(answer: Json): Exact {
  const found = answer !== null && typeof answer === "object" && !Array.isArray(answer) ? answer : {};
  const { value, text, index } = found;
  return {
    value: typeof value === "number" ? value : null,
    text: (typeof text === "string" && text) || (value === null || value === undefined ? "no value" : String(value)),
    index: Array.isArray(index) ? index.filter((part) => typeof part === "number") : [],
  };
}
