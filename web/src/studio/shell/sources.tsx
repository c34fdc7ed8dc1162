// Choosing the source: a run, the live network or a recording; saving recordings.
import { useState } from "preact/hooks";

import type { Recording } from "../messages";
import { useValue, type Store } from "../store";
import { Dialog } from "./dialog";
import { Icon } from "./icons";

/** Choose among the runs of a folder; nothing if there is no choice. */
export function RunChooser({ store }: { store: Store }) {
  const runs = useValue(store.runs);
  const run = useValue(store.run);
  const { total } = useValue(store.runList);
  if (!runs.length && !total) return null;
  if (total > runs.length) return <ListButton store={store} total={total} />;
  const choose = (list: HTMLSelectElement): void => {
    store.send({ kind: "open_run", id: Number(list.value) });
    list.value = String(run); // keep showing the current run; the server may refuse the other
  };
  return (
    <select class="runs" aria-label="Run" value={String(run)} onChange={({ currentTarget }) => choose(currentTarget)}>
      {runs.every(({ id }) => id !== run) && (
        <option value={String(run)}>{run < 0 ? "Choose a run…" : "not there any more"}</option>
      )}
      {runs.map(({ id, name, status, summary }) => (
        <option key={id} value={String(id)}>
          {[name, status === "live" ? "live" : "", summary].filter(Boolean).join(" · ")}
        </option>
      ))}
    </select>
  );
}

// More runs than a menu can list: the tab has them.
function ListButton({ store, total }: { store: Store; total: number }) {
  return (
    <button class="quiet" title="The list of runs (H)" onClick={() => store.tab.set("runs")}>
      <Icon name="table" /> {total.toLocaleString("en")} runs
    </button>
  );
}

/** Save the recorded states; open a saved recording. */
export function Recordings({ store }: { store: Store }) {
  const hello = useValue(store.hello);
  const moments = useValue(store.moments);
  const [dialog, setDialog] = useState<"save" | "open" | null>(null);
  const close = (): void => setDialog(null);
  const report = useValue(store.report);
  const isReplay = hello?.source === "recording";
  const isKept = isReplay || hello?.source === "comparison"; // there is nothing new to save
  if (report) return null; // a file saves nothing, and has nothing beside it
  return (
    <>
      <button
        class="quiet"
        aria-label="Save recording"
        disabled={!moments.length || isKept}
        title={saveHint(moments.length)}
        onClick={() => setDialog("save")}
      >
        <Icon name="save" /> <span class="word">Save</span>
      </button>
      <button class="quiet" aria-label="Open recording" title="Open a recording" onClick={() => setDialog("open")}>
        <Icon name="open" /> <span class="word">Open</span>
      </button>
      {isReplay && <button onClick={() => store.send({ kind: "open_recording", id: -1 })}>Close recording</button>}
      {dialog === "save" && <SaveDialog store={store} close={close} />}
      {dialog === "open" && <OpenDialog store={store} close={close} />}
    </>
  );
}

function saveHint(states: number): string {
  return states ? `Save the ${states} recorded states` : "Nothing recorded yet";
}

function SaveDialog({ store, close }: { store: Store; close: () => void }) {
  const [name, setName] = useState("");
  const isInvalid = /[^A-Za-z0-9_-]/.test(name);
  const save = (event: Event): void => {
    event.preventDefault();
    if (isInvalid) return;
    store.send({ kind: "save_recording", name });
    close();
  };
  return (
    <Dialog title="Save recording" close={close}>
      <form class="lines" onSubmit={save}>
        <label class="stacked">
          Name
          <input
            value={name}
            placeholder="made from the time, if empty"
            maxLength={80}
            aria-invalid={isInvalid}
            aria-describedby="save-hint"
            onInput={({ currentTarget }) => setName(currentTarget.value)}
          />
        </label>
        <p id="save-hint" class={isInvalid ? "wrong" : "soft"}>
          {isInvalid ? "Only letters, digits, - and _ are allowed." : saveHint(store.moments.get().length) + "."}
        </p>
        <div class="row end">
          <button type="submit" class="primary" disabled={isInvalid}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function OpenDialog({ store, close }: { store: Store; close: () => void }) {
  const recordings = useValue(store.recordings);
  const open = (id: number): void => {
    store.send({ kind: "open_recording", id });
    close();
  };
  return (
    <Dialog title="Open recording" close={close}>
      {!recordings.length && <p class="soft">Nothing saved yet: “Save” keeps the recorded states of a network.</p>}
      <ul class="choices">
        {recordings.map((recording) => (
          <li key={recording.id}>
            <button onClick={() => open(recording.id)}>
              <span>{recording.name}</span>
              <span class="soft">{describe(recording)}</span>
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function describe({ states, bytes }: Recording): string {
  const size = bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
  return `${states} states · ${size}`;
}
