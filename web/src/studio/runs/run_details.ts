// What the server knows of runs, asked for when it is shown.
import { useEffect, useState } from "preact/hooks";

import type { Json, RunDetails } from "../messages";
import { parseNumbers } from "../non_finite";
import { useValue, type Store } from "../store";

export type { RunDetails };

/** Ask for the details of runs. */
export async function askDetails(store: Store, runs: number[]): Promise<RunDetails[]> {
  const answer = await store.ask({ kind: "ask_run_details", runs });
  return answer.map((run) => ({ ...run, results: parsed(run.results) }));
}

function parsed(results: Record<string, Json>): Record<string, Json> {
  return Object.fromEntries(Object.entries(results).map(([name, value]) => [name, parseNumbers(value)]));
}

/** The details of runs, again when the list changes; null until they are there, or why they are not. */
export function useDetails(store: Store, runs: number[]): RunDetails[] | string | null {
  const [answer, setAnswer] = useState<RunDetails[] | string | null>(null);
  const { revision } = useValue(store.runList);
  const connection = useValue(store.connection);
  useEffect(() => {
    let isCurrent = true;
    if (connection !== "open") return;
    askDetails(store, runs).then(
      (value) => isCurrent && setAnswer(value),
      (error: Error) => isCurrent && setAnswer(error.message),
    );
    return () => {
      isCurrent = false;
    };
  }, [runs.join(), revision, connection]);
  return answer;
}

/** Split what a person types as tags: by spaces and commas, each once. */
export function splitTags(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
}
