// Key bindings: every part of the page registers its keys here, and the help lists them.
import { Signal } from "./signal";
import type { Store, TabName } from "./store";

/** A key and its action; with `tab`, active on that tab only. */
export interface KeyBinding {
  key: string; // as in KeyboardEvent.key: "ArrowLeft", " ", "?"; "Shift+ArrowLeft" with Shift held
  label?: string; // as shown in the help: "←", "Space"
  description: string; // "Train or stop"
  tab?: TabName;
  run: () => void;
}

/** All key bindings, in the order of the help. */
export const keyBindings = new Signal<readonly KeyBinding[]>([]);

/** Register key bindings; returns a function that removes them. */
export function addKeyBindings(bindings: KeyBinding[]): () => void {
  keyBindings.set([...keyBindings.get(), ...bindings]);
  return () => keyBindings.set(keyBindings.get().filter((key) => !bindings.includes(key)));
}

/** Listen to the keyboard. */
export function listenForKeys(store: Store): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isHandledByTarget(event)) return;
    if (document.querySelector("dialog[open]")) return;
    const binding = findBinding(event, store.tab.get());
    if (!binding) return;
    event.preventDefault();
    binding.run();
  });
}

function findBinding({ key, shiftKey }: KeyboardEvent, currentTab: TabName): KeyBinding | undefined {
  const active = keyBindings.get().filter(({ tab }) => !tab || tab === currentTab);
  const shifted = shiftKey ? active.find((binding) => binding.key === `Shift+${key}`) : undefined;
  return shifted ?? active.find((binding) => binding.key === key);
}

// Whether the focused element handles the key itself: a field all keys, a button Space, tabs and sliders the arrows,
// Home and End, radio buttons the arrows, a check box none of them.
function isHandledByTarget(event: KeyboardEvent): boolean {
  const [target] = event.composedPath(); // the graph's elements are in a shadow root, which hides them from `target`
  const { key } = event;
  if (!(target instanceof Element)) return false;
  if (target.closest("input:not([type=checkbox],[type=radio],[type=range]), select, textarea, [contenteditable]"))
    return true;
  if ((key === " " || key === "Enter") && target.closest("button, a, summary, input, [role=button]")) return true;
  if (key.startsWith("Arrow") && target.closest("input[type=radio]")) return true;
  return /^(Arrow|Page|Home|End)/.test(key) && !!target.closest("[role=tab], [role=grid], input[type=range]");
}
