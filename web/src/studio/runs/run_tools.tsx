// What can be done with the list and the chosen runs.
import { useState } from "preact/hooks";

import { CompareDialog } from "../compare/compare_dialog";
import { Icon } from "../shell/icons";
import { useValue, type Store } from "../store";
import { download, formatCsv } from "../tables/csv";
import { DeleteDialog, TagDialog } from "./run_dialogs";
import { checked, current, type RunRows } from "./run_list";
import { openRun } from "./open_run";

interface RunToolsProps {
  store: Store;
  list: RunRows;
  sorted: Uint32Array;
  chooseColumns: () => void;
}

/** The buttons above the list. */
export function RunTools({ store, list, sorted, chooseColumns }: RunToolsProps) {
  const chosen = useValue(checked);
  const focused = useValue(current);
  const [dialog, setDialog] = useState<"compare" | "tag" | "delete" | null>(null);
  const ids = list.ids.filter((id) => chosen.has(id));
  const close = (): void => setDialog(null);
  const isListed = list.ids.includes(focused);
  const names = list.table.head.columns.map(({ name }) => name);
  const save = (): void => {
    const cells = Array.from(sorted, (row) => names.map((name) => list.table.columns[name]?.[row] ?? null));
    download("runs.csv", formatCsv(names, cells), "text/csv");
  };
  return (
    <div class="row end">
      {ids.length > 0 && (
        <span class="chosen" role="group" aria-label="Chosen runs">
          <button class="quiet" title="Choose none" onClick={() => checked.set(new Set())}>
            <Icon name="close" /> {ids.length} chosen
          </button>
          {ids.length < 3 && (
            <button class="quiet" title="Compare checkpoints, layer by layer" onClick={() => setDialog("compare")}>
              Compare…
            </button>
          )}
          <button class="quiet" onClick={() => setDialog("tag")}>
            Tag…
          </button>
          <button class="quiet" onClick={() => setDialog("delete")}>
            Delete…
          </button>
        </span>
      )}
      <button
        class="quiet"
        disabled={!isListed}
        title="Open the current run (Enter)"
        onClick={() => openRun(store, focused)}
      >
        <Icon name="open" /> Open run
      </button>
      <button class="quiet" onClick={chooseColumns}>
        <Icon name="table" /> Columns
      </button>
      <button class="quiet" disabled={!sorted.length} onClick={save}>
        <Icon name="down" /> CSV
      </button>
      {dialog === "compare" && <CompareDialog store={store} ids={ids} close={close} />}
      {dialog === "tag" && <TagDialog store={store} ids={ids} close={close} />}
      {dialog === "delete" && <DeleteDialog store={store} list={list} ids={ids} close={close} />}
    </div>
  );
}
