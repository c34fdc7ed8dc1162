// The keyboard: every part of the page adds its keys here, and the help lists them.
import { Signal } from "./signal";
import type { Store, TabName } from "./store";

/** A key and what it does; `tab` where it means something on that tab only. */
export interface Key {
  key: string; // as KeyboardEvent.key has it: "ArrowLeft", " ", "?"; "Shift+ArrowLeft" with Shift held
  shown?: string; // as people call it: "←", "Space"
  what: string; // "Train or stop"
  tab?: TabName;
  run: () => void;
}

/** All keys there are, in the order of the help. */
export const keys = new Signal<readonly Key[]>([]);

/** Add keys; the answer takes them away. */
export function addKeys(added: Key[]): () => void {
  keys.set([...keys.get(), ...added]);
  return () => keys.set(keys.get().filter((key) => !added.includes(key)));
}

/** Listen to the keyboard. */
export function listen(store: Store): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTaken(event)) return;
    if (document.querySelector("dialog[open]")) return;
    const found = bound(event, store.tab.get());
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}

function bound({ key, shiftKey }: KeyboardEvent, now: TabName): Key | undefined {
  const here = keys.get().filter(({ tab }) => !tab || tab === now);
  const shifted = shiftKey ? here.find((entry) => entry.key === `Shift+${key}`) : undefined;
  return shifted ?? here.find((entry) => entry.key === key);
}

// What has the focus may want the key itself: a field all of them, a button Space, tabs and sliders the arrows.
function isTaken({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof Element)) return false;
  if (target.closest("input:not([type=checkbox],[type=radio],[type=range]), select, textarea, [contenteditable]")) return true;
  if ((key === " " || key === "Enter") && target.closest("button, a, summary, input, [role=button]")) return true;
  return /^(Arrow|Page|Home|End)/.test(key) && !!target.closest("[role=tab], [role=grid], input");
}
