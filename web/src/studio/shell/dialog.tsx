// A modal that traps focus and closes with Escape, using the browser's <dialog>.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { Icon } from "./icons";

/** A dialog, open while mounted. */
export function Dialog(props: { title: string; wide?: boolean; close: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const lastFocus = document.activeElement;
    box.current?.showModal();
    box.current?.querySelector<HTMLElement>("input, .choices button")?.focus();
    return () => lastFocus instanceof HTMLElement && lastFocus.focus();
  }, []);
  const closeOnBackdrop = (event: MouseEvent): void => {
    if (event.target === box.current) props.close();
  };
  return (
    <dialog
      ref={box}
      class={props.wide ? "dialog wide" : "dialog"}
      aria-label={props.title}
      onClose={props.close}
      onMouseDown={closeOnBackdrop}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2>{props.title}</h2>
          <button class="quiet" aria-label="Close" onClick={props.close}>
            <Icon name="close" />
          </button>
        </header>
        {props.children}
      </div>
    </dialog>
  );
}
