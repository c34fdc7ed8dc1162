// The current run: what people call it and say of it, its config and its results.
import { useLayoutEffect, useState } from "preact/hooks";

import type { Json } from "../messages";
import { Icon } from "../shell/icons";
import { useValue, type Store } from "../store";
import { formatTime, formatValue } from "../tables/value_format";
import { splitTags, useDetails, type RunDetails } from "./run_details";
import { current, type RunRows } from "./run_list";
import { openRun } from "./open_run";

const MOST_FACTS = 300;

/** The panel. */
export function RunPanel({ store, list }: { store: Store; list: RunRows }) {
  const id = useValue(current);
  if (!list.ids.includes(id)) return <p class="empty">Click a run in the list, or a curve.</p>;
  return <RunFacts key={id} store={store} id={id} />;
}

function RunFacts({ store, id }: { store: Store; id: number }) {
  const answer = useDetails(store, [id]);
  if (typeof answer === "string") return <p class="empty">{answer}</p>;
  const run = answer?.[0];
  if (!run) return <p class="empty">Reading…</p>;
  return (
    <div class="run-panel">
      <header class="row between">
        <div class="run-title">
          <h2>{run.name || run.folder}</h2>
          <p class="soft">{factsText(run)}</p>
        </div>
        <button class="primary" onClick={() => openRun(store, id)}>
          <Icon name="open" /> Open
        </button>
      </header>
      {run.problem && <p class="wrong">{run.problem}</p>}
      <NotesForm store={store} run={run} />
      <FactList title="Config" facts={run.config} />
      <FactList title="Last results" facts={run.results} />
    </div>
  );
}

function factsText({ name, folder, kind, status, summary, made_by, changed }: RunDetails): string {
  const kinds: Record<string, string> = { events: "TensorBoard events", lightning: "Lightning CSV log" };
  const parts = [name && folder, status, kinds[kind] ?? made_by, summary, changed && `changed ${formatTime(changed)}`];
  return parts.filter(Boolean).join(" · ");
}

function NotesForm({ store, run }: { store: Store; run: RunDetails }) {
  const [name, setName] = useState(run.name);
  const [tags, setTags] = useState(run.tags.join(" "));
  const [note, setNote] = useState(run.note);
  // Before the form is painted: what is typed into it at once must stay.
  useLayoutEffect(() => {
    setName(run.name);
    setTags(run.tags.join(" "));
    setNote(run.note);
  }, [run.name, run.tags.join(" "), run.note]);
  const isChanged = name !== run.name || tags !== run.tags.join(" ") || note !== run.note;
  const save = (event: Event): void => {
    event.preventDefault();
    store.ask({ kind: "note_run", run: run.id, name, tags: splitTags(tags), note }).then(
      (answer) => store.notice(`Kept in ${answer.kept}`, "done"),
      (error: Error) => store.notice(error.message),
    );
  };
  return (
    <form class="notes" onSubmit={save}>
      <label class="stacked">
        Name
        <input
          value={name}
          maxLength={200}
          placeholder={run.folder}
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
      </label>
      <label class="stacked">
        Tags
        <input
          value={tags}
          placeholder="words, with spaces between them"
          onInput={({ currentTarget }) => setTags(currentTarget.value)}
        />
      </label>
      <label class="stacked wide">
        Note
        <textarea
          rows={3}
          maxLength={4000}
          value={note}
          onInput={({ currentTarget }) => setNote(currentTarget.value)}
        />
      </label>
      <div class="row end wide">
        <button type="submit" disabled={!isChanged}>
          Save
        </button>
      </div>
    </form>
  );
}

function FactList({ title, facts }: { title: string; facts: Record<string, Json> }) {
  const names = Object.keys(facts);
  if (!names.length) return null;
  return (
    <section>
      <h3>{title}</h3>
      <dl class="run-facts">
        {names.slice(0, MOST_FACTS).map((name) => (
          <div key={name}>
            <dt title={name}>{name}</dt>
            <dd title={String(facts[name])}>{formatValue(facts[name])}</dd>
          </div>
        ))}
      </dl>
      {names.length > MOST_FACTS && <p class="soft">{names.length - MOST_FACTS} more in the list’s columns.</p>}
    </section>
  );
}
