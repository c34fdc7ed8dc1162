// Signals: observable values, the page's only state shared between components.
import { useLayoutEffect, useState } from "preact/hooks";

/** A value and its subscribers. */
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

  /** Change some fields of an object; subscribers are not called if nothing differs. */
  patch(part: Partial<T>): void {
    const current = this.value;
    const keys = Object.keys(part) as (keyof T)[];
    if (keys.some((key) => !Object.is(part[key], current[key]))) this.set({ ...current, ...part });
  }

  /** Call `watcher` at each change; returns a function that unsubscribes. */
  subscribe(watcher: (value: T) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** The signal's value, in a component that re-renders when it changes. */
export function useValue<T>(signal: Signal<T>): T {
  const [, redraw] = useState(0);
  const current = signal.get();
  // Subscribed in a layout effect, before the next paint: input in between would act on old values.
  useLayoutEffect(() => {
    const rerender = (): void => redraw((count) => count + 1);
    if (!Object.is(current, signal.get())) rerender(); // it changed between render and subscription
    return signal.subscribe(rerender);
  }, [signal]);
  return current;
}
