// A cache of exact values, each requested once.
import type { UnitValue } from "../../messages";
import type { Store } from "../../store";

export type ExactValue = UnitValue;

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
    const answer = this.store.ask(question).then(withText);
    this.cache.set(key, answer);
    answer.catch(() => this.cache.delete(key)); // the next request may succeed
    if (this.cache.size > MAX_CACHED) this.cache.delete(this.cache.keys().next().value!);
    return answer;
  }

  clear(): void {
    this.cache.clear();
  }
}

function withText({ value, text, index }: UnitValue): ExactValue {
  return { value, text: text || (value === null ? "no value" : String(value)), index };
}
