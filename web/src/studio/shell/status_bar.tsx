// The last line of the page: what the run is doing, and where it is.
import { useValue, type Store } from "../store";
import { useTableAlone } from "../tables/table_chooser";
import { plain } from "../tables/value_format";

const WORDS = new Map([
  ["running", "Running"], ["paused", "Paused"], ["testing", "Testing"], ["done", "Done"], ["idle", "Idle"], ["lost", "Lost"],
]);

const OVER = new Set(["done", "lost"]); // whoever goes away, these stay true

/** Status and counters. */
export function Status({ store }: { store: Store }) {
  const state = useValue(store.state);
  const hello = useValue(store.hello);
  const alone = useTableAlone(store);
  const lost = useValue(store.connection) === "lost" && !OVER.has(state.status);
  const counters = Object.entries(state.counters);
  return (
    <footer class="status" aria-label="Where the run is">
      <span class={`doing ${lost ? "idle" : state.status}`} role="status">
        <span class="dot" aria-hidden="true" />
        {hello ? `${WORDS.get(state.status) ?? state.status}${lost ? " when last seen" : ""}` : "Loading…"}
      </span>
      {!counters.length && !alone && <span class="soft">No step has been taken yet</span>}
      {counters.map(([name, value]) => (
        <span key={name} class="counter">
          <span class="soft">{name}</span> <b>{plain(value)}</b>
        </span>
      ))}
      {state.message && <span class="message" title={state.message}>{state.message}</span>}
    </footer>
  );
}
