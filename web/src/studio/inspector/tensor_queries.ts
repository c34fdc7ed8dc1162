// Questions about a layer's tensors: the one place where the inspector speaks with the server.
import { useEffect, useState } from "preact/hooks";
import type { AskSlice, AskStatistics, LayerTensors, TensorStatistics } from "../messages";
import { parseNumbers } from "../non_finite";
import type { Signal } from "../signal";
import type { Store, Unnumbered } from "../store";
import { SliceBlock } from "./slice_block";

const REFRESH_MS = 400; // at most so often while states come

export async function askTensors(store: Store, layer: string, moment: number): Promise<LayerTensors> {
  return (await store.ask({ kind: "ask_tensors", layer, moment })) as unknown as LayerTensors;
}

export async function askSlice(store: Store, question: Omit<Unnumbered<AskSlice>, "kind">): Promise<SliceBlock> {
  const { head, bytes } = await store.askSlice({ kind: "ask_slice", ...question });
  return new SliceBlock(head, bytes);
}

export async function askStatistics(
  store: Store,
  question: Omit<Unnumbered<AskStatistics>, "kind">,
): Promise<TensorStatistics> {
  const answer = (await store.ask({ kind: "ask_statistics", ...question })) as unknown as Record<string, never>;
  return Object.fromEntries(
    Object.entries(answer).map(([name, part]) => [name, parseNumbers(part)]),
  ) as unknown as TensorStatistics;
}

/** An answer, or why there is none; `key` tells what it answers. */
export interface Asked<T> {
  key: string;
  value: T | null;
  problem: string;
}

/**
 * Ask at once when `key` changes, and again, never twice at a time, when a signal does. The answer before stays until
 * the next one comes, so that nothing flickers; `key` says whether it is still the one that was asked for.
 */
export function useAnswer<T>(
  key: string,
  ask: (() => Promise<T>) | null,
  refreshers: readonly Signal<never>[],
): Asked<T> | null {
  const [answer, setAnswer] = useState<Asked<T> | null>(null);
  useEffect(() => {
    if (!ask) return setAnswer(null);
    let [isOver, timer, isAsking, isOutdated] = [false, 0, false, false];
    const askNow = async (): Promise<void> => {
      timer = 0;
      if (isAsking) return void (isOutdated = true);
      [isAsking, isOutdated] = [true, false];
      const next = await ask().then(
        (value): Asked<T> => ({ key, value, problem: "" }),
        (error: Error): Asked<T> => ({ key, value: null, problem: error.message }),
      );
      isAsking = false;
      if (isOver) return;
      setAnswer(next);
      if (isOutdated) askLater();
    };
    const askLater = (): void => void (timer ||= window.setTimeout(() => void askNow(), REFRESH_MS));
    void askNow();
    const ends = refreshers.map((signal) => signal.subscribe(askLater));
    return () => {
      isOver = true;
      window.clearTimeout(timer);
      ends.forEach((end) => end());
    };
  }, [key, !ask]);
  return answer;
}
