// Dialogs on the chosen runs: tags for all of them, moving them to the trash.
import { useState } from "preact/hooks";

import { Dialog } from "../shell/dialog";
import type { Store } from "../store";
import { splitTags } from "./run_details";
import { checked, current, runLabel, type RunRows } from "./run_list";

const MOST_NAMES = 12;
const MOST_AT_ONCE = 200; // runs of one question

/** Add tags to runs, or take them away. */
export function TagDialog({ store, ids, close }: { store: Store; ids: number[]; close: () => void }) {
  const [text, setText] = useState("");
  const tags = splitTags(text);
  const change = (isAdded: boolean) => (event: Event) => {
    event.preventDefault();
    close();
    tagRuns(store, ids, tags, isAdded).catch((error: Error) => store.notice(error.message));
  };
  return (
    <Dialog title={`Tags of ${countRuns(ids.length)}`} close={close}>
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
  const [add, remove] = isAdded ? [tags, []] : [[], tags];
  let count = 0;
  for (const runs of chunksOf(ids)) {
    const answer = await store.ask({ kind: "tag_runs", runs, add, remove });
    count += answer.count;
    reportProblems(store, answer.problems);
  }
  if (count) store.notice(`${isAdded ? "Tagged" : "Untagged"} ${countRuns(count)}.`, "done");
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
    deleteRuns(store, ids).catch((error: Error) => store.notice(error.message));
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

async function deleteRuns(store: Store, ids: number[]): Promise<void> {
  const [moved, places] = [new Array<string>(), new Array<string>()];
  let folder = "";
  for (const runs of chunksOf(ids)) {
    const answer = await store.ask({ kind: "delete_runs", runs });
    moved.push(...answer.moved);
    places.push(...answer.places);
    folder = answer.trash;
    reportProblems(store, answer.problems);
  }
  checked.set(new Set());
  current.set(-1);
  const undo = (): void => void restoreRuns(store, places).catch((error: Error) => store.notice(error.message));
  if (moved.length)
    store.notice(`Moved ${moved.length === 1 ? moved[0] : countRuns(moved.length)} to ${folder}`, "done", undo);
}

async function restoreRuns(store: Store, places: string[]): Promise<void> {
  let count = 0;
  for (const some of chunksOf(places)) {
    const answer = await store.ask({ kind: "restore_runs", places: some });
    count += answer.restored.length;
    reportProblems(store, answer.problems);
  }
  if (count) store.notice(`Moved ${countRuns(count)} back.`, "done");
}

function reportProblems(store: Store, problems: readonly string[]): void {
  for (const problem of problems.slice(0, 3)) store.notice(problem);
}

function countRuns(count: number): string {
  return count === 1 ? "1 run" : `${count} runs`;
}

/** Split what is more than one question may be about. */
export function chunksOf<Item>(items: Item[], most = MOST_AT_ONCE): Item[][] {
  const count = Math.ceil(items.length / most);
  return Array.from({ length: count }, (_, place) => items.slice(place * most, (place + 1) * most));
}
