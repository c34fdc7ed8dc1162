// Questions about a layer's tensors: the one place where the inspector speaks with the server.
import { useEffect, useState } from "preact/hooks";
import type { AskSlice, AskStatistics, Json, LayerTensors, TensorStatistics } from "../messages";
import { parseNumbers } from "../non_finite";
import type { Signal } from "../signal";
import type { Store, Unnumbered } from "../store";
import { SliceBlock } from "./slice_block";

const REFRESH_MS = 400; // at most so often while states come

export function askTensors(store: Store, layer: string, moment: number): Promise<LayerTensors> {
  return store.ask({ kind: "ask_tensors", layer, moment });
}

export async function askSlice(store: Store, question: Omit<Unnumbered<AskSlice>, "kind">): Promise<SliceBlock> {
  const { head, bytes } = await store.askSlice({ kind: "ask_slice", ...question });
  return new SliceBlock(head, bytes);
}

export async function askStatistics(
  store: Store,
  question: Omit<Unnumbered<AskStatistics>, "kind">,
): Promise<TensorStatistics> {
  const answer = await store.ask({ kind: "ask_statistics", ...question });
  const parsed = Object.entries(answer).map(([name, part]: [string, Json]) => [name, parseNumbers(part)]);
  return { ...answer, ...(Object.fromEntries(parsed) as Partial<TensorStatistics>) };
}

/** An answer with its question; or why there is none. */
export interface Asked<Question, Value> {
  question: Question;
  value: Value | null;
  problem: string;
}

/**
 * Ask at once when the question changes, and again, never twice at a time, when a signal does. The answer before stays
 * until the next one comes, so that nothing flickers; its own question says whether it is still what was asked for.
 */
export function useAnswer<Question, Value>(
  question: Question | null,
  ask: (question: Question) => Promise<Value>,
  refresher: Pick<Signal<unknown>, "subscribe"> | null,
): Asked<Question, Value> | null {
  const [answer, setAnswer] = useState<Asked<Question, Value> | null>(null);
  useEffect(() => {
    if (question === null) return setAnswer(null);
    let [isOver, timer, isAsking, isOutdated] = [false, 0, false, false];
    const askNow = async (): Promise<void> => {
      timer = 0;
      if (isAsking) return void (isOutdated = true);
      [isAsking, isOutdated] = [true, false];
      const next = await ask(question).then(
        (value) => ({ question, value, problem: "" }),
        (error: Error) => ({ question, value: null, problem: error.message }),
      );
      isAsking = false;
      if (isOver) return;
      setAnswer(next);
      if (isOutdated) askLater();
    };
    const askLater = (): void => void (timer ||= window.setTimeout(() => void askNow(), REFRESH_MS));
    void askNow();
    const end = refresher?.subscribe(askLater);
    return () => {
      isOver = true;
      window.clearTimeout(timer);
      end?.();
    };
  }, [JSON.stringify(question)]);
  return answer;
}
