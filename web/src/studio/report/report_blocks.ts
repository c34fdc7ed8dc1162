// The data embedded in a report: blocks by key, each decompressed when it is first asked for.

/** One block: what it is, and where it lies. */
interface BlockEntry {
  key: (string | number)[];
  start: number;
  count: number;
}

const MAX_CACHED = 12; // blocks; a scene may have megabytes

/** The blocks of a report, as `studio/report/report_blocks.py` writes them. */
export class ReportBlocks {
  private readonly bytes: Uint8Array;
  private readonly entries = new Map<string, BlockEntry>();
  private readonly dataStart: number;
  private readonly cache = new Map<string, Promise<Uint8Array>>();

  constructor(base64: string) {
    this.bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const length = new DataView(this.bytes.buffer).getUint32(0, true);
    this.dataStart = 4 + length;
    const index = JSON.parse(new TextDecoder().decode(this.bytes.subarray(4, this.dataStart))) as BlockEntry[];
    for (const entry of index) this.entries.set(JSON.stringify(entry.key), entry);
  }

  /** The bytes of a block; null if there is none. */
  read(...key: BlockEntry["key"]): Promise<Uint8Array> | null {
    const name = JSON.stringify(key);
    const entry = this.entries.get(name);
    if (!entry) return null;
    const block = this.cache.get(name) ?? this.inflate(entry);
    this.cache.delete(name);
    this.cache.set(name, block); // the one that was read last goes last
    if (this.cache.size > MAX_CACHED) this.cache.delete(this.cache.keys().next().value!);
    return block;
  }

  private async inflate({ start, count }: BlockEntry): Promise<Uint8Array> {
    const packed = this.bytes.slice(this.dataStart + start, this.dataStart + start + count);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
}
