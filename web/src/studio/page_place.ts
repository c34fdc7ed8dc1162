// Where the user is, in the address: the tab and the selection, so that a reload comes back to them.
import type { Selection, TabName } from "./store";

/** The selection that the address names; null for none. */
export function readPlace(hash = location.hash): Selection | null {
  const fields = new URLSearchParams(hash.split("&").slice(1).join("&"));
  const [layer, module] = [fields.get("layer"), fields.get("module")];
  const unit = Math.max(0, Math.floor(Number(fields.get("unit"))) || 0);
  return layer ? { layer, unit, ...(module === null ? {} : { module }) } : null;
}

/** The address of a tab and a selection. */
export function placeHash(tab: TabName, selection: Selection | null): string {
  const { layer, unit, module } = selection ?? {};
  const fields = new URLSearchParams(layer === undefined ? {} : { layer });
  if (unit) fields.set("unit", String(unit));
  if (module !== undefined) fields.set("module", module);
  return ["#" + tab, fields.toString()].filter(Boolean).join("&");
}

/** Write it to the address, without a step in the browser's history. */
export function writePlace(tab: TabName, selection: Selection | null): void {
  history.replaceState(null, "", placeHash(tab, selection));
}
