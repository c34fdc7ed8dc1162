// Where the user is, in the address: the tab, the run of a folder and the selection, so that a reload comes back to them.
import type { Selection, TabName } from "./store";

/** The selection that the address names; null for none. */
export function readPlace(hash = location.hash): Selection | null {
  const fields = fieldsOf(hash);
  const [layer, module] = [fields.get("layer"), fields.get("module")];
  const unit = Math.max(0, Math.floor(Number(fields.get("unit"))) || 0);
  return layer ? { layer, unit, ...(module === null ? {} : { module }) } : null;
}

/** The run that the address names, by its id; -1 for none. */
export function readRun(hash = location.hash): number {
  const run = fieldsOf(hash).get("run");
  return run !== null && /^\d{1,9}$/.test(run) ? Number(run) : -1;
}

function fieldsOf(hash: string): URLSearchParams {
  return new URLSearchParams(hash.split("&").slice(1).join("&"));
}

/** The address of a tab, a selection and a run; -1: the one that opens by itself. */
export function placeHash(tab: TabName, selection: Selection | null, run = -1): string {
  const { layer, unit, module } = selection ?? {};
  const fields = new URLSearchParams(layer === undefined ? {} : { layer });
  if (run >= 0) fields.set("run", String(run));
  if (unit) fields.set("unit", String(unit));
  if (module !== undefined) fields.set("module", module);
  return ["#" + tab, fields.toString()].filter(Boolean).join("&");
}

/** Write it to the address, without a step in the browser's history. */
export function writePlace(tab: TabName, selection: Selection | null, run: number): void {
  const hash = placeHash(tab, selection, run);
  if (hash !== location.hash) history.replaceState(null, "", hash); // it takes milliseconds
}
