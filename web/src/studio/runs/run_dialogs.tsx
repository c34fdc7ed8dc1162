// Dialogs on the chosen runs: tags for all of them, moving them to the trash.
import { useState } from "preact/hooks";

import type { RunsDeleted } from "../messages";
import { Dialog } from "../shell/dialog";
import type { Store } from "../store";
import { askDetails, splitTags, type RunDetails } from "./run_details";
import { checked, current, runLabel, type RunRows } from "./run_list";

const MOST_NAMES = 12;
const MOST_TAGGED = 200; // runs at once

/** Add tags to runs, or take them away. */
export function TagDialog({ store, ids, close }: { store: Store; ids: number[]; close: () => void }) {
  const [text, setText] = useState("");
  const tags = splitTags(text);
  const change = (isAdded: boolean) => (event: Event) => {
    event.preventDefault();
    close();
    tagRuns(store, ids.slice(0, MOST_TAGGED), tags, isAdded).catch((error: Error) => store.notice(error.message));
  };
  return (
    <Dialog title={`Tags of ${ids.length} runs`} close={close}>
      <form class="lines" onSubmit={change(true)}>
        <label class="stacked">
          Tags
          <input
            value={text}
            placeholder="words, with spaces between them"
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
        </label>
        <div class="row end">
          <button type="button" disabled={!tags.length} onClick={change(false)}>
            Take away
          </button>
          <button type="submit" class="primary" disabled={!tags.length}>
            Add
          </button>
        </div>
      </form>
    </Dialog>
  );
}

async function tagRuns(store: Store, ids: number[], tags: string[], isAdded: boolean): Promise<void> {
  const runs = await askDetails(store, ids);
  for (const run of runs) await keepTags(store, run, changedTags(run.tags, tags, isAdded));
  store.notice(`${isAdded ? "Tagged" : "Untagged"} ${runs.length} runs.`, "done");
}

/** The tags of a run after some were added or taken away. */
export function changedTags(before: string[], tags: string[], isAdded: boolean): string[] {
  return isAdded ? [...new Set([...before, ...tags])] : before.filter((tag) => !tags.includes(tag));
}

async function keepTags(store: Store, { id, name, note }: RunDetails, tags: string[]): Promise<void> {
  await store.ask({ kind: "note_run", run: id, name, tags, note });
}

interface DeleteDialogProps {
  store: Store;
  list: RunRows;
  ids: number[];
  close: () => void;
}

/** Ask before runs are moved to the trash. */
export function DeleteDialog({ store, list, ids, close }: DeleteDialogProps) {
  const names = ids.slice(0, MOST_NAMES).map((id) => runLabel(list, list.ids.indexOf(id)));
  const remove = (event: Event): void => {
    event.preventDefault();
    close();
    store.ask({ kind: "delete_runs", runs: ids }).then(
      (answer) => report(store, answer),
      (error: Error) => store.notice(error.message),
    );
  };
  return (
    <Dialog title={ids.length === 1 ? "Delete this run?" : `Delete ${ids.length} runs?`} close={close}>
      <form class="lines" onSubmit={remove}>
        <ul class="doomed">
          {names.map((name, index) => (
            <li key={index}>{name}</li>
          ))}
          {ids.length > names.length && <li class="soft">and {ids.length - names.length} more</li>}
        </ul>
        <p class="soft">They are moved to the folder .trash beside the runs. Runs that are being written stay.</p>
        <div class="row end">
          <button type="button" onClick={close}>
            Keep
          </button>
          <button type="submit" class="primary">
            Move to the trash
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function report(store: Store, { moved, trash, problems }: RunsDeleted): void {
  checked.set(new Set());
  current.set(-1);
  if (moved.length) store.notice(`Moved ${moved.length === 1 ? moved[0] : `${moved.length} runs`} to ${trash}`, "done");
  for (const problem of problems.slice(0, 3)) store.notice(problem);
}
