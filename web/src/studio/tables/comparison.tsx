// A column of tensors, its rows compared: how alike they are, along which axes they differ, which form groups.
import { useEffect, useState } from "preact/hooks";

import type { TableHead } from "../messages";
import { Dialog } from "../shell/dialog";
import { useValue, type Store } from "../store";
import { Dendrogram } from "./dendrogram";
import { HeatMap } from "./heat_map";
import { Scatter } from "./scatter_plot";

/** What the server answers, whichever was asked for. */
interface Compared {
  labels: string[];
  total: number; // rows there are
  matrix?: (number | null)[][];
  points?: [number, number][];
  explained?: number[];
  order?: number[];
  merges?: [number, number, number][];
}

const KINDS = [
  { name: "similarity", title: "Similarity", doc: "The correlation of every two rows." },
  { name: "pca", title: "Principal components", doc: "The rows along the two axes on which they differ most." },
  { name: "clusters", title: "Clusters", doc: "The nearest two groups are joined, again and again; further right is less alike." },
];

/** A dialog with a picture of each. */
export function Comparison({ store, table, column, close }: { store: Store; table: TableHead; column: string; close: () => void }) {
  const [kind, setKind] = useState("similarity");
  const { found, problem } = useAnswer(store, table.name, column, kind);
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
        {KINDS.find(({ name }) => name === kind)!.doc} {found && found.labels.length < found.total && `${found.labels.length} of ${found.total} rows: the newest that hold only numbers.`}
      </p>
      <div class="comparison">
        {problem && <p class="wrong" role="alert">{problem}</p>}
        {!problem && !found && <p class="soft">Comparing…</p>}
        {found?.matrix && <HeatMap labels={found.labels} matrix={found.matrix} />}
        {found?.points && <Scatter labels={found.labels} points={found.points} explained={found.explained ?? []} />}
        {found?.merges && <Dendrogram labels={found.labels} order={found.order ?? []} merges={found.merges} />}
      </div>
    </Dialog>
  );
}

function useAnswer(store: Store, table: string, column: string, kind: string): { found: Compared | null; problem: string } {
  const [answer, setAnswer] = useState<{ kind: string; found: Compared | null; problem: string } | null>(null);
  const hello = useValue(store.hello); // a new connection: what was asked of the one before may have been lost
  useEffect(() => {
    let wanted = true; // an answer that comes after another question is too late
    const tell = (found: Compared | null, problem = "") => wanted && setAnswer({ kind, found, problem });
    store.ask({ kind: "ask_analysis", table, column, analysis: kind }).then(
      (found) => tell(found as unknown as Compared),
      (error: Error) => tell(null, error.message),
    );
    return () => {
      wanted = false;
    };
  }, [table, column, kind, hello]);
  return answer?.kind === kind ? answer : { found: null, problem: "" };
}
