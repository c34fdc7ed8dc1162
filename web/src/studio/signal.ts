// A value that can be watched; the page's only kind of state that more than one part reads.
import { useLayoutEffect, useState } from "preact/hooks";

/** A value and those who want to know when it changes. */
export class Signal<T> {
  private readonly watchers = new Set<(value: T) => void>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /** Change a part of an object; nobody is told where nothing differs. */
  patch(part: Partial<T>): void {
    const current = this.value;
    const keys = Object.keys(part) as (keyof T)[];
    if (keys.some((key) => !Object.is(part[key], current[key]))) this.set({ ...current, ...part });
  }

  /** Call `watcher` at each change from now on; the answer ends that. */
  subscribe(watcher: (value: T) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** The signal's value, in a component that is drawn again when it changes. */
export function useValue<T>(signal: Signal<T>): T {
  const [, redraw] = useState(0);
  const current = signal.get();
  // Watched from when it is drawn, not from the next picture on: what is pressed in between would act on old values.
  useLayoutEffect(() => {
    const rerender = (): void => redraw((count) => count + 1);
    if (!Object.is(current, signal.get())) rerender(); // it changed between drawing and watching
    return signal.subscribe(rerender);
  }, [signal]);
  return current;
}
