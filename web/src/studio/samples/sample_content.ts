// The content of samples: asked for once it is looked at for a moment, kept in a cache of bounded size.
import { useEffect, useState } from "preact/hooks";

import type { Json } from "../messages";
import type { SampleBytes, Store } from "../store";

export type Content = SampleBytes | { [key: string]: Json };

const MAX_CACHED_BYTES = 64 << 20;
const JSON_BYTES = 100_000; // assumed of a text, a table or a matrix
const WAIT_MS = 60; // a slider that moves on asks for nothing

const cache = new Map<number, Content>(); // least recently used first
let cachedBytes = 0;

/** A sample's content; null until it arrives. `error`: why it cannot be shown. */
export function useContent(store: Store, id: number): { content: Content | null; error: string } {
  const [shown, setShown] = useState<{ content: Content | null; error: string }>({
    content: cache.get(id) ?? null,
    error: "",
  });
  useEffect(() => {
    let isCurrent = true;
    const cached = cache.get(id);
    if (cached) {
      touch(id, cached);
      setShown({ content: cached, error: "" });
      return;
    }
    const ask = async (): Promise<void> => {
      try {
        const content = (await store.askSample(id)) as Content;
        remember(id, content);
        if (isCurrent) setShown({ content, error: "" });
      } catch (error) {
        if (isCurrent) setShown({ content: null, error: error instanceof Error ? error.message : String(error) });
      }
    };
    const timer = window.setTimeout(ask, WAIT_MS);
    return () => {
      isCurrent = false;
      window.clearTimeout(timer);
    };
  }, [id]);
  return shown;
}

/** Forget everything: another run is shown, whose samples have the same numbers. */
export function forgetContent(): void {
  cache.clear();
  cachedBytes = 0;
}

function sizeOf(content: Content): number {
  return "bytes" in content && content.bytes instanceof Uint8Array ? content.bytes.byteLength : JSON_BYTES;
}

function touch(id: number, content: Content): void {
  cache.delete(id);
  cache.set(id, content);
}

function remember(id: number, content: Content): void {
  if (!cache.has(id)) cachedBytes += sizeOf(content);
  touch(id, content);
  for (const [oldest, dropped] of cache) {
    if (cachedBytes <= MAX_CACHED_BYTES) return;
    cache.delete(oldest);
    cachedBytes -= sizeOf(dropped);
  }
}
