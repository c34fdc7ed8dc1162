// Compare the rows of a tensor column: similarity, principal components, clusters.
import { useEffect, useState } from "preact/hooks";

import type { AskAnalysis, ColumnAnalysis, TableHead } from "../messages";
import { Dialog } from "../shell/dialog";
import { useValue, type Store } from "../store";
import { Dendrogram } from "./dendrogram";
import { HeatMap } from "./heat_map";
import { ScatterPlot } from "./scatter_plot";

const KINDS = [
  { name: "similarity", title: "Similarity", doc: "The correlation of every two rows." },
  { name: "pca", title: "Principal components", doc: "The rows along the two axes on which they differ most." },
  {
    name: "clusters",
    title: "Clusters",
    doc: "The nearest two groups are joined, again and again; further right is less alike.",
  },
] as const;

/** A dialog with one picture per analysis. */
export function Comparison({
  store,
  table,
  column,
  close,
}: {
  store: Store;
  table: TableHead;
  column: string;
  close: () => void;
}) {
  const [kind, setKind] = useState<AskAnalysis["analysis"]>("similarity");
  const { result, problem } = useAnalysis(store, table.name, column, kind);
  return (
    <Dialog title={`${column} · ${table.title || table.name}`} wide close={close}>
      <div class="segments" role="radiogroup" aria-label="Compare by">
        {KINDS.map(({ name, title }) => (
          <label key={name} class={name === kind ? "on" : undefined}>
            <input type="radio" name="compare" checked={name === kind} onChange={() => setKind(name)} />
            {title}
          </label>
        ))}
      </div>
      <p class="soft">
        {KINDS.find(({ name }) => name === kind)!.doc}{" "}
        {result &&
          result.labels.length < result.total &&
          `${result.labels.length} of ${result.total} rows: the newest that hold only numbers.`}
      </p>
      <div class="comparison">
        {problem && (
          <p class="wrong" role="alert">
            {problem}
          </p>
        )}
        {!problem && !result && <p class="soft">Comparing…</p>}
        {result?.matrix && <HeatMap labels={result.labels} matrix={result.matrix} />}
        {result?.points && (
          <ScatterPlot labels={result.labels} points={result.points} explained={result.explained ?? []} />
        )}
        {result?.merges && <Dendrogram labels={result.labels} order={result.order ?? []} merges={result.merges} />}
      </div>
    </Dialog>
  );
}

function useAnalysis(
  store: Store,
  table: string,
  column: string,
  kind: AskAnalysis["analysis"],
): { result: ColumnAnalysis | null; problem: string } {
  const [answer, setAnswer] = useState<{ kind: string; result: ColumnAnalysis | null; problem: string } | null>(null);
  const hello = useValue(store.hello); // after a reconnect, request again: the last request may have been lost
  useEffect(() => {
    let isCurrent = true; // an answer to an earlier request is stale
    const update = (result: ColumnAnalysis | null, problem = "") => isCurrent && setAnswer({ kind, result, problem });
    store.ask({ kind: "ask_analysis", table, column, analysis: kind }).then(
      (result) => update(result),
      (error: Error) => update(null, error.message),
    );
    return () => {
      isCurrent = false;
    };
  }, [table, column, kind, hello]);
  return answer?.kind === kind ? answer : { result: null, problem: "" };
}
