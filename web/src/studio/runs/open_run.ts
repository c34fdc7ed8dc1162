// From the list to a run, as the other tabs show it.
import type { Store } from "../store";

/** Show a run; the list stays as it is, and its tab leads back to it. */
export function openRun(store: Store, id: number): void {
  if (store.send({ kind: "open_run", id })) store.tab.set("network");
}
