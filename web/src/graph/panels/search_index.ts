// The search index: boxes and items by name, class, function, shape or label, folded ones included.
import type { Payload, Details, ItemDetails } from "../payload";
import { joinAddress } from "../layout/placement";
import { parseSelector, positionOf } from "./layer_selection";

export interface SearchEntry {
  path: string;
  name: string;
  kind: string;
  address: string; // module address, "layer1.0.conv1"
  label: string; // an item's name in the history
  text: string; // the searched text, in lower case
  lowerName: string;
  lowerKind: string;
}

const SLICE_MS = 8; // time slice per batch, so that the page stays responsive

/** Lower-case a text; a shape gets one spelling, however it was typed: 1×64×55×55. */
export function normalize(text: string): string {
  return text.toLowerCase().replace(/(\d)\s*[x×,*]\s*(?=\d)/g, "$1×");
}

/** All boxes and items in execution order; built in time slices. */
export class SearchIndex {
  readonly entries: SearchEntry[] = [];
  readonly ready: Promise<void>;
  done = false;
  private operations = 0; // by the positions in their labels

  constructor(data: Payload, details: Details, pause: () => Promise<void> = yieldToBrowser) {
    this.ready = this.fill(walkEntries(data, details), pause);
  }

  /** Entries that a query names by the grammar of layers, then those that contain all of its words. */
  find(query: string): SearchEntry[] {
    const words = normalize(query).split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const selects = parseSelector(query, this.operations);
    const ranks: SearchEntry[][] = [[], [], [], []];
    for (const entry of this.entries) {
      if (selects?.(entry)) ranks[0].push(entry);
      else if (entry.text.includes(words[0]) && words.every((word) => entry.text.includes(word)))
        ranks[1 + rank(entry, words[0])].push(entry);
    }
    return ranks.flat();
  }

  private async fill(entries: Generator<SearchEntry>, pause: () => Promise<void>): Promise<void> {
    let start = performance.now();
    for (const entry of entries) {
      this.entries.push(entry);
      this.operations = Math.max(this.operations, positionOf(entry.label) + 1);
      if (this.entries.length % 200 || performance.now() - start < SLICE_MS) continue;
      await pause();
      start = performance.now();
    }
    this.done = true;
  }
}

// Labels are lower case.
function rank({ lowerName, lowerKind, label }: SearchEntry, word: string): number {
  if (lowerName === word || lowerKind === word || label === word) return 0;
  return lowerName.startsWith(word) || lowerKind.startsWith(word) || label.startsWith(word) ? 1 : 2;
}

const lowered = new Map<string, string>(); // 100,000 operations have few names and kinds

function lowerCase(text: string): string {
  let lower = lowered.get(text);
  if (lower === undefined) lowered.set(text, (lower = text.toLowerCase()));
  return lower;
}

function* walkEntries(data: Payload, details: Details): Generator<SearchEntry> {
  const stack = [{ plan: data.root, path: "", address: "", first: 0 }];
  while (stack.length) {
    const frame = stack.pop()!;
    const plan = data.plans[frame.plan];
    const innerFrames: typeof stack = [];
    for (let n = 0; n < plan.parts.length; n++) {
      const part = plan.parts[n];
      const leaf = data.leaves[part.leaf];
      const partPlan = part.plan < 0 ? null : data.plans[part.plan];
      const [name, path, first] = [plan.names[n], frame.path + n, frame.first + plan.first[n]];
      const isNamed = !partPlan || partPlan.sort === "module" || partPlan.sort === "function";
      const address = isNamed ? joinAddress(frame.address, name) : frame.address;
      const base = partPlan?.sort === "function" ? frame.address : address; // functions are no part of a module's address
      if (partPlan) innerFrames.push({ plan: part.plan, path: `${path}/`, address: base, first });
      if (!partPlan) yield makeEntry(path, name, leaf.kind, address, leaf.exits, details.item(first));
      else if (isNamed) yield makeEntry(path, name, leaf.kind, address, leaf.exits, null);
    }
    stack.push(...innerFrames.reverse());
  }
}

function makeEntry(
  path: string,
  name: string,
  kind: string,
  address: string,
  shapes: string[],
  item: ItemDetails | null,
): SearchEntry {
  const facts = item ? item[2].filter(([key]) => key === "function" || key === "result").map(([, value]) => value) : [];
  const label = item?.[0] ?? "";
  const text = normalize([address, kind, label, ...facts, ...(item ? [] : shapes)].join("\n"));
  return { path, name, kind, address, label, text, lowerName: lowerCase(name), lowerKind: lowerCase(kind) };
}

function yieldToBrowser(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
