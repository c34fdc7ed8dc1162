// The banner shown without a connection: what is known about the server and the run.
import type { Ended, State } from "../messages";
import { useValue, type Store } from "../store";

/** The banner; nothing while connected. */
export function Banner({ store }: { store: Store }) {
  const connection = useValue(store.connection);
  const refused = useValue(store.refused);
  if (connection !== "lost") return null;
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

function LostBanner({ store }: { store: Store }) {
  const ended = useValue(store.ended);
  const isOver = ended && (ended.state.status === "done" || ended.state.status === "lost");
  return (
    <div class="banner" role="alert">
      <p>
        <LostMessage store={store} ended={ended} /> What you see is as it was. {!ended && "Trying again…"}
      </p>
      {!isOver && <button onClick={() => store.retry()}>Try now</button>}
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
  if (status === "lost") return "The process that trained was gone before that.";
  return "Whether training goes on cannot be seen from here.";
}
