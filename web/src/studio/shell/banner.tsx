// The banner: how the run that is shown has ended, or, without a connection, what is known about server and run.
import { useEffect, useState } from "preact/hooks";

import type { Ended, OutcomeCame, State } from "../messages";
import { useValue, type Store } from "../store";
import { CopyText } from "./copy_text";
import { Icon } from "./icons";
import { isOver } from "./liveness";

/** The banner; nothing while a run goes on, or where none ran. */
export function Banner({ store }: { store: Store }) {
  const connection = useValue(store.connection);
  const refused = useValue(store.refused);
  if (connection !== "lost") return <OutcomeBanner store={store} />;
  if (refused) {
    return (
      <div class="banner bad" role="alert">
        <p>
          <strong>This page is not let in any more.</strong> The studio was started again, with a new key. Open the
          address that torcheer printed last: it has the new key in it.
        </p>
      </div>
    );
  }
  return <LostBanner store={store} />;
}

function OutcomeBanner({ store }: { store: Store }) {
  const outcome = useValue(store.outcome);
  const { status } = useValue(store.state);
  const wasLive = useValue(store.hello)?.source === "live";
  const [hidden, setHidden] = useState("");
  if (!outcome?.heading || outcome.heading === hidden) return null;
  const tone = status === "done" ? "ended" : "bad";
  return (
    <div class={`banner ${tone}`} role="status">
      <p>
        <strong>{outcome.heading}.</strong> <Kept outcome={outcome} />
      </p>
      <span class="row">
        {wasLive && <CloseButton store={store} />}
        <button class="quiet" aria-label="Hide" title="Hide" onClick={() => setHidden(outcome.heading)}>
          <Icon name="close" />
        </button>
      </span>
    </div>
  );
}

// Where the run lies, and the command that opens it again when the studio is closed.
function Kept({ outcome }: { outcome: OutcomeCame }) {
  if (!outcome.command) return <>{outcome.text}</>;
  return (
    <>
      It is kept; open it again with <CopyText text={outcome.command} />
    </>
  );
}

// The second press closes: pages of others, and a tunnel, would go with a slip.
function CloseButton({ store }: { store: Store }) {
  const [asked, setAsked] = useState(false);
  useEffect(() => {
    if (!asked) return;
    const timer = window.setTimeout(() => setAsked(false), 5000);
    return () => window.clearTimeout(timer);
  }, [asked]);
  const press = (): void => {
    if (asked) store.send({ kind: "close_studio" });
    setAsked(!asked);
  };
  return (
    <button title="End the studio's server; what is on disk stays" onClick={press}>
      {asked ? "Press again to close it" : "Close the studio"}
    </button>
  );
}

function LostBanner({ store }: { store: Store }) {
  const ended = useValue(store.ended);
  const outcome = useValue(store.outcome);
  const retrying = useValue(store.retrying);
  return (
    <div class="banner" role="alert">
      <p>
        <LostMessage store={store} ended={ended} /> What you see is as it was.{" "}
        {outcome?.command && (
          <>
            Open it again with <CopyText text={outcome.command} />{" "}
          </>
        )}
        {!ended && "Trying again…"}
      </p>
      {!(ended && isOver(ended.state.status)) && (
        <button disabled={retrying} onClick={() => store.retry()}>
          {retrying ? "Trying…" : "Try now"}
        </button>
      )}
    </div>
  );
}

function LostMessage({ store, ended }: { store: Store; ended: Ended | null }) {
  const reason = useValue(store.reason);
  const state = useValue(store.state);
  const source = useValue(store.hello)?.source;
  if (ended) {
    return (
      <>
        <strong>{ended.heading}.</strong> {ended.text}
      </>
    );
  }
  return (
    <>
      <strong>Connection to the viewer lost{reason && `: ${reason}`}.</strong>{" "}
      {source === "live" ? trainingOutcome(state) : ""}
    </>
  );
}

// A killed viewer sends no farewell, so the state of training is unknown.
function trainingOutcome({ status }: State): string {
  if (status === "done") return "Training had ended before that.";
  if (status === "failed") return "Training had failed before that.";
  if (status === "lost") return "The process that trained was gone before that.";
  return "Whether training goes on cannot be seen from here.";
}
