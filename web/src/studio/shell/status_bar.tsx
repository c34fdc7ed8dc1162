// The status bar: what the run is doing, and its counters.
import { useValue, type Store } from "../store";
import { useTableOnly } from "../tables/table_chooser";
import { formatValue } from "../tables/value_format";
import { isOver } from "./liveness";

const STATUS_LABELS = new Map([
  ["running", "Running"],
  ["paused", "Paused"],
  ["testing", "Testing"],
  ["done", "Done"],
  ["failed", "Failed"],
  ["idle", "Idle"],
  ["lost", "Lost"],
]);

/** Status and counters. */
export function StatusBar({ store }: { store: Store }) {
  const state = useValue(store.state);
  const hello = useValue(store.hello);
  const tableOnly = useTableOnly(store);
  const isLost = useValue(store.connection) === "lost" && !isOver(state.status);
  const counters = Object.entries(state.counters);
  return (
    <footer class="status" aria-label="Where the run is">
      <span class={`doing ${isLost ? "idle" : state.status}`} role="status">
        <span class="dot" aria-hidden="true" />
        {hello ? `${STATUS_LABELS.get(state.status) ?? state.status}${isLost ? " when last seen" : ""}` : "Loading…"}
      </span>
      {!counters.length && !tableOnly && <span class="soft">No step has been taken yet</span>}
      {counters.map(([name, value]) => (
        <span key={name} class="counter">
          <span class="soft">{name}</span> <b>{formatValue(value)}</b>
        </span>
      ))}
      {state.message && (
        <span class="message" title={state.message}>
          {state.message}
        </span>
      )}
    </footer>
  );
}
