// A cache of exact values, each requested once.
import type { Json } from "../../messages";
import type { Store } from "../../store";

export interface ExactValue {
  value: number | null; // null if not finite or unknown
  text: string; // in full precision
  index: number[];
}

export interface ValueQuery {
  layer: string;
  unit: number;
  variable: string;
  item: number;
  moment: number;
  of: { layer: string; unit: number } | null; // the unit whose weights are meant
}

const MAX_CACHED = 400;

/** Exact values, the latest MAX_CACHED of them cached. */
export class ExactValues {
  private readonly cache = new Map<string, Promise<ExactValue>>();

  constructor(private readonly store: Store) {}

  ask(query: ValueQuery): Promise<ExactValue> {
    const key = JSON.stringify([query.layer, query.unit, query.variable, query.item, query.moment, query.of]);
    const cached = this.cache.get(key);
    if (cached) return cached;
    const { of, ...fields } = query;
    const question = { kind: "ask_value" as const, ...fields, of_layer: of?.layer ?? "", of_unit: of?.unit ?? -1 };
    const answer = this.store.ask(question).then(parseExactValue);
    this.cache.set(key, answer);
    answer.catch(() => this.cache.delete(key)); // the next request may succeed
    if (this.cache.size > MAX_CACHED) this.cache.delete(this.cache.keys().next().value!);
    return answer;
  }

  clear(): void {
    this.cache.clear();
  }
}

function parseExactValue(answer: Json): ExactValue {
  const fields = answer !== null && typeof answer === "object" && !Array.isArray(answer) ? answer : {};
  const { value, text, index } = fields;
  return {
    value: typeof value === "number" ? value : null,
    text: (typeof text === "string" && text) || (value === null || value === undefined ? "no value" : String(value)),
    index: Array.isArray(index) ? index.filter((part) => typeof part === "number") : [],
  };
}
