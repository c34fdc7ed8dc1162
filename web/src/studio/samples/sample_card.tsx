// One card: the samples of a name at a step, each drawn as its kind asks for. Names, captions and cells are text, never HTML.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

import type { Json, SampleHead } from "../messages";
import { ErrorBoundary } from "../shell/error_boundary";
import type { SampleBytes, Store } from "../store";
import { AudioView } from "./audio_view";
import { ConfusionView } from "./confusion_view";
import { ImageView } from "./image_view";
import { useContent, type Content } from "./sample_content";
import type { SampleGroup } from "./sample_groups";
import { SampleTable } from "./sample_table";

/** The card; one of an earlier step than the slider's says so. */
export function SampleCard({ store, group, shownStep }: { store: Store; group: SampleGroup; shownStep: number }) {
  const [isLarge, setLarge] = useState(false);
  const isEarlier = group.samples.length > 0 && group.step !== shownStep;
  return (
    <section
      class={`sample-card kind-${group.kind}${isLarge ? " large" : ""}`}
      aria-label={`${group.kind} ${group.name}`}
    >
      <header>
        <h2 title={group.name}>{group.name}</h2>
        {group.samples.length > 0 && (
          <span class={isEarlier ? "soft earlier" : "soft"} title={formatTime(group.samples[0].time_secs)}>
            step {group.step.toLocaleString("en")}
          </span>
        )}
        <button
          class="quiet"
          aria-pressed={isLarge}
          aria-label={`Enlarge ${group.name}`}
          title="Enlarge"
          onClick={() => setLarge(!isLarge)}
        >
          <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
            <path d="M2 2h5v1.5H4.6l3 3-1.1 1.1-3-3V7H2zm12 12H9v-1.5h2.4l-3-3 1.1-1.1 3 3V9H14z" fill="currentColor" />
          </svg>
        </button>
      </header>
      <div class="sample-items">
        {!group.samples.length && <p class="soft empty-note">Nothing at this step or before.</p>}
        {group.samples.map((head, place) => (
          <ErrorBoundary key={place} part={group.name}>
            <SampleItem store={store} head={head} isLarge={isLarge} />
          </ErrorBoundary>
        ))}
      </div>
    </section>
  );
}

function SampleItem({ store, head, isLarge }: { store: Store; head: SampleHead; isLarge: boolean }) {
  const { content, error } = useContent(store, head.id);
  const note = content ? noteOf(content) : "";
  return (
    <figure class="sample">
      {error && <p class="wrong">{error}</p>}
      {!content && !error && <p class="soft empty-note">Loading…</p>}
      {content && drawn(head, content, isLarge)}
      {(head.caption || note) && (
        <figcaption>
          {head.caption}
          {note && <span class="soft"> {head.caption ? `(${note})` : note}</span>}
        </figcaption>
      )}
    </figure>
  );
}

function drawn(head: SampleHead, content: Content, isLarge: boolean): ComponentChildren {
  const label = head.caption || `${head.name} of step ${head.step}`;
  if (isBinary(content)) {
    if (head.kind === "image")
      return <ImageView {...content} label={label} isLarge={isLarge} inList={head.item >= 0} />;
    return <AudioView {...content} label={label} />;
  }
  if (head.kind === "text")
    return (
      <pre class="sample-text" tabIndex={0}>
        {String(content.text ?? "")}
      </pre>
    );
  if (head.kind === "table")
    return <SampleTable names={texts(content.names)} columns={lists(content.columns)} label={label} />;
  if (head.kind === "confusion")
    return <ConfusionView names={texts(content.names)} matrix={lists(content.matrix)} label={label} />;
  return <p class="soft">A newer version of torcheer shows samples of kind {head.kind}.</p>;
}

function isBinary(content: Content): content is SampleBytes {
  return "bytes" in content && content.bytes instanceof Uint8Array;
}

function noteOf(content: Content): string {
  return String(isBinary(content) ? content.head.note : (content.note ?? ""));
}

function texts(value: Json | undefined): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

function lists(value: Json | undefined): Json[][] {
  return Array.isArray(value) ? value.map((part) => (Array.isArray(part) ? part : [])) : [];
}

function formatTime(secs: number): string {
  const date = new Date(secs * 1000);
  return Number.isNaN(date.getTime()) ? "" : `logged ${date.toLocaleString()}`;
}
