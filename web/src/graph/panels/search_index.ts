// Find boxes and items by name, class, function, shape or label, also where they are hidden.
import type { Data, Details, Item } from "../payload";
import { join } from "../layout/placement";

export interface Entry {
  path: string;
  name: string;
  kind: string;
  where: string; // its address
  label: string; // an item's name in the history
  text: string; // what is searched, in small letters
}

const SLICE_MS = 8; // so long at a time, that the page never stands still

/** Small letters; a shape is written one way, however it was typed: 1×64×55×55. */
export function normal(text: string): string {
  return text.toLowerCase().replace(/(\d)\s*[x×,*]\s*(?=\d)/g, "$1×");
}

/** All boxes and items, in the order they ran; made bit by bit. */
export class Index {
  readonly entries: Entry[] = [];
  readonly ready: Promise<void>;
  done = false;

  constructor(data: Data, details: Details, pause: () => Promise<void> = later) {
    this.ready = this.fill(walk(data, details), pause);
  }

  /** What has all words of a query: the best first, then in the order they ran. */
  find(query: string): Entry[] {
    const words = normal(query).split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const ranks: Entry[][] = [[], [], []];
    for (const entry of this.entries) {
      if (words.every((word) => entry.text.includes(word))) ranks[rank(entry, words[0])].push(entry);
    }
    return ranks.flat();
  }

  private async fill(entries: Generator<Entry>, pause: () => Promise<void>): Promise<void> {
    let start = performance.now();
    for (const entry of entries) {
      this.entries.push(entry);
      if (this.entries.length % 200 || performance.now() - start < SLICE_MS) continue;
      await pause();
      start = performance.now();
    }
    this.done = true;
  }
}

function rank({ name, kind, label }: Entry, word: string): number {
  const names = [name, kind, label].map((text) => text.toLowerCase());
  return names.includes(word) ? 0 : names.some((text) => text.startsWith(word)) ? 1 : 2;
}

function* walk(data: Data, details: Details): Generator<Entry> {
  const stack = [{ plan: data.root, path: "", address: "", first: 0 }];
  while (stack.length) {
    const here = stack.pop()!;
    const plan = data.plans[here.plan];
    const inner: typeof stack = [];
    for (let n = 0; n < plan.parts.length; n++) {
      const part = plan.parts[n];
      const leaf = data.leaves[part.leaf];
      const whole = part.plan < 0 ? null : data.plans[part.plan];
      const [name, path, first] = [plan.names[n], here.path + n, here.first + plan.first[n]];
      const where = whole && whole.sort !== "module" ? here.address : join(here.address, name);
      if (whole) inner.push({ plan: part.plan, path: `${path}/`, address: where, first });
      if (!whole) yield entryOf(path, name, leaf.kind, where, leaf.exits, details.item(first));
      else if (whole.sort === "module") yield entryOf(path, name, leaf.kind, where, leaf.exits, null);
    }
    stack.push(...inner.reverse());
  }
}

function entryOf(path: string, name: string, kind: string, where: string, shapes: string[], item: Item | null): Entry {
  const facts = item ? item[2].filter(([key]) => key === "function" || key === "result").map(([, value]) => value) : [];
  const label = item?.[0] ?? "";
  const text = normal([where, kind, label, ...facts, ...(item ? [] : shapes)].join("\n"));
  return { path, name, kind, where, label, text };
}

function later(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
