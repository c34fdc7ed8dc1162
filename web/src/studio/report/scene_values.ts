// The values of a report's scene: its frames by layer, a unit's number, units over time as one frame.
import { splitFrame } from "../socket";
import type { FrameHead } from "../messages";
import { valueOf, type Frame } from "../network/values/value_ranges";

/** One moment of one variable. */
export interface SceneValues {
  frames: Map<string, Frame>;
  missing: Record<string, string>; // the reason, by layer
}

const STEPS = 250; // bytes 1 to 251 span lo to hi

/** Parse a block: pieces with their lengths, the first a JSON head, the others frames. */
export function parseScene(block: Uint8Array): SceneValues {
  const pieces = splitPieces(block);
  const frames = new Map<string, Frame>();
  for (const piece of pieces.slice(1)) {
    const [head, bytes] = splitFrame(piece.buffer as ArrayBuffer) as [FrameHead, Uint8Array];
    frames.set(head.layer, { head, bytes });
  }
  const head = JSON.parse(new TextDecoder().decode(pieces[0])) as Pick<SceneValues, "missing">;
  return { frames, missing: head.missing };
}

/** The pieces of a block; each stands after its length. */
export function splitPieces(block: Uint8Array): Uint8Array[] {
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  const pieces: Uint8Array[] = [];
  for (let start = 0; start < block.length;) {
    const end = start + 4 + view.getUint32(start, true);
    pieces.push(block.slice(start + 4, end));
    start = end;
  }
  return pieces;
}

/** A unit's number, as exact as the picture is; undefined without one, or where a cell stands for several units. */
export function unitValue(frame: Frame | undefined, unit: number): number | undefined {
  if (!frame || frame.head.block[0] * frame.head.block[1] !== 1) return undefined;
  return valueOf(frame.head, frame.bytes[unit] ?? 0);
}

/** Rows are units, columns are moments; null where no frame has a byte for each unit. */
export function rasterFrame(frames: (Frame | undefined)[], units: number): Frame | null {
  const whole = frames.map((frame) => (frame && frame.head.block[0] * frame.head.block[1] === 1 ? frame : undefined));
  const last = whole.filter(Boolean).pop();
  if (!last) return null;
  const heads = whole.flatMap((frame) => (frame ? [frame.head] : []));
  const [lo, hi] = [Math.min(...heads.map((head) => head.lo)), Math.max(...heads.map((head) => head.hi))];
  const bytes = new Uint8Array(units * frames.length);
  whole.forEach((frame, column) => {
    for (let unit = 0; frame && unit < units; unit++)
      bytes[unit * frames.length + column] = rescaled(frame, frame.bytes[unit], lo, hi);
  });
  const grid: FrameHead["grid"] = [1, 1, units, frames.length];
  return { head: { ...last.head, grid, count: bytes.length, lo, hi, raster: true }, bytes };
}

// A byte of a frame on another range; no data, NaN and the infinities have the same byte on all.
function rescaled({ head }: Frame, byte: number, lo: number, hi: number): number {
  const value = valueOf(head, byte);
  if (value === undefined || !Number.isFinite(value)) return byte;
  return 1 + (hi > lo ? Math.round(((value - lo) / (hi - lo)) * STEPS) : 0);
}
