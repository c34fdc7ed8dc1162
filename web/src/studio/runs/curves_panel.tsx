// Curves of the chosen runs over each other; a click on one makes its run the current one.
import { useEffect, useMemo, useState } from "preact/hooks";

import type { CurvesAnswer } from "../messages";
import { LinesPanel } from "../plots/tab";
import { Icon } from "../shell/icons";
import { Signal, useValue, type Store } from "../store";
import { columns, current, runLabel, type RunRows } from "./run_list";
import { overlayOf, usualSeries } from "./run_overlay";

const MOST_RUNS = 100;
const MOST_SERIES = 16;
const chosenSeries = new Signal<string[] | null>(null); // null: the usual one

/** The panel. */
export function CurvesPanel({ store, list, drawn }: { store: Store; list: RunRows; drawn: number[] }) {
  const names = useValue(columns)
    .filter(({ group, name }) => group === "result" && name !== "Step" && name !== "Epoch")
    .map(({ name }) => name);
  const chosen = useValue(chosenSeries)?.filter((name) => names.includes(name)) ?? null;
  const series = chosen ?? usualSeries(names);
  const runs = drawn.slice(0, MOST_RUNS).map((row) => list.ids[row]);
  const answer = useCurves(store, runs, series);
  const focused = useValue(current);
  const rowOf = useMemo(() => new Map(list.ids.map((id, row) => [id, row])), [list]);
  const label = (run: number): string => runLabel(list, rowOf.get(run) ?? -1);
  const overlay = useMemo(() => answer && overlayOf(answer.curves, series, label), [answer, list]);
  const pick = (group: string): void => current.set(runs.find((run) => label(run) === group) ?? focused);
  if (!names.length) return <p class="empty">No run has numbers yet.</p>;
  const remarks = [
    ...(drawn.length > MOST_RUNS ? [`The first ${MOST_RUNS} of ${drawn.length} chosen runs are drawn.`] : []),
    ...(overlay?.remarks ?? []),
    ...(answer?.problems ?? []),
  ];
  return (
    <div class="run-curves">
      <SeriesChooser names={names} series={series} />
      {overlay ? (
        <LinesPanel table={overlay.table} marked={rowOf.has(focused) ? label(focused) : ""} pick={pick} />
      ) : (
        <p class="empty">Reading…</p>
      )}
      {remarks.map((remark) => (
        <p key={remark} class="remark soft">
          {remark}
        </p>
      ))}
    </div>
  );
}

// The curves of these runs and series; what was read before is shown until the answer is there.
function useCurves(store: Store, runs: number[], series: string[]): CurvesAnswer | null {
  const [answer, setAnswer] = useState<CurvesAnswer | null>(null);
  const { revision } = useValue(store.runList);
  const connection = useValue(store.connection);
  useEffect(() => {
    let isCurrent = true;
    if (connection !== "open") return;
    if (!runs.length || !series.length) {
      setAnswer({ curves: [], problems: [] });
      return;
    }
    store.ask({ kind: "ask_curves", runs, series }).then(
      (value) => isCurrent && setAnswer(value),
      (error: Error) => isCurrent && setAnswer({ curves: [], problems: [error.message] }),
    );
    return () => {
      isCurrent = false;
    };
  }, [runs.join(), series.join("\n"), revision, connection]);
  return answer;
}

function SeriesChooser({ names, series }: { names: string[]; series: string[] }) {
  const [text, setText] = useState("");
  const add = (name: string): void => {
    if (!names.includes(name)) return setText(name);
    if (!series.includes(name) && series.length < MOST_SERIES) chosenSeries.set([...series, name]);
    setText("");
  };
  return (
    <div class="tools series" role="group" aria-label="Metrics">
      {series.map((name) => (
        <span key={name} class="chip">
          {name}
          <button
            class="quiet"
            aria-label={`Remove ${name}`}
            onClick={() => chosenSeries.set(series.filter((other) => other !== name))}
          >
            <Icon name="close" />
          </button>
        </span>
      ))}
      <input
        list="run-series"
        aria-label="Add a metric"
        placeholder={`Add one of ${names.length.toLocaleString("en")} metrics`}
        value={text}
        onInput={({ currentTarget }) => add(currentTarget.value)}
      />
      <datalist id="run-series">
        {matching(names, text).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </div>
  );
}

function matching(names: string[], text: string): string[] {
  return names.filter((name) => name.toLowerCase().includes(text.toLowerCase())).slice(0, 100);
}
