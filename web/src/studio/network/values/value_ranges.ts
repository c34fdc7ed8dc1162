// From which to which value the colours go, and which colours.
import type { FrameHead, Variable } from "../../messages";
import type { Strange } from "../../non_finite";
import { MAPS } from "./colour_maps";

export interface Frame {
  head: FrameHead;
  bytes: Uint8Array;
}

export type RangeMode = "auto" | "layer" | "percentile" | "fixed";

export interface RangeSetting {
  mode: RangeMode; // "layer": automatic, each layer by itself
  min: number; // of "fixed"
  max: number;
  percent: number; // of "percentile": so much of the values lies inside
  zeroCentred: boolean;
  map: string; // the colour map's name
}

/** How a variable is shown until somebody changes it. */
export function firstSetting(variable: Variable | undefined): RangeSetting {
  const [min, max] = variable?.range ?? [-1, 1];
  const mode = variable?.range ? "fixed" : "layer"; // one strong layer would leave the others grey
  return { mode, min, max, percent: 99, zeroCentred: variable?.zero_centred ?? true, map: MAPS[0].name };
}

/** The range of these frames; of mode "layer" called with one of them at a time. */
export function rangeOf(frames: readonly Frame[], setting: RangeSetting): [number, number] {
  if (setting.mode === "fixed") return widened(setting.min, setting.max, setting.zeroCentred);
  const found = setting.mode === "percentile" ? inner(frames, setting) : extremes(frames);
  const [lo, hi] = found[0] < found[1] ? found : extremes(frames); // where nearly all are zero, the few others count
  return widened(lo, hi, setting.zeroCentred);
}

const MOST = 251; // bytes go from 1, which is lo, up to this, which is hi; 0 is no data
const FIRST_STRANGE = 253;
const STRANGE_BYTES: readonly Strange[] = ["nan", "plus", "minus"]; // from that on

/** The value that a byte of a frame stands for; undefined where it is no data. */
export function valueOf(head: FrameHead, byte: number): number | undefined {
  if (!byte) return undefined;
  if (byte >= FIRST_STRANGE) return { nan: NaN, plus: Infinity, minus: -Infinity }[STRANGE_BYTES[byte - FIRST_STRANGE]];
  return head.lo + ((head.hi - head.lo) * (byte - 1)) / (MOST - 1);
}

/** Which of NaN and the infinities these frames have. */
export function strangeIn(frames: Iterable<Frame>): Strange[] {
  const found = new Set<Strange>();
  for (const { head } of frames) {
    if (head.nans) found.add("nan");
    if (head.infs > head.negative_infs) found.add("plus");
    if (head.negative_infs) found.add("minus");
  }
  return STRANGE_BYTES.filter((kind) => found.has(kind));
}

/** Where a value lies in a range, from 0 to 1. */
export function shareIn(range: [number, number], value: number): number {
  return Math.max(0, Math.min(1, (value - range[0]) / (range[1] - range[0])));
}

/** The value a bar stands on: zero, or where the range does not hold it, the end that is nearest to it. */
export function groundOf([lo, hi]: [number, number]): number {
  return Math.max(lo, Math.min(hi, 0));
}

function extremes(frames: readonly Frame[]): [number, number] {
  let [lo, hi] = [Infinity, -Infinity];
  for (const { head } of frames) {
    if (!known(head)) continue;
    [lo, hi] = [Math.min(lo, head.lo), Math.max(hi, head.hi)];
  }
  return [lo, hi];
}

/** What is left when the outermost values are cut off; when zero-centred, by their distance from zero. */
function inner(frames: readonly Frame[], { percent, zeroCentred }: RangeSetting): [number, number] {
  const found: [number, number][] = []; // value, how often
  let total = 0;
  for (const frame of frames) {
    if (!known(frame.head)) continue;
    counts(frame.bytes).forEach((count, byte) => {
      const value = valueOf(frame.head, byte);
      if (!count || value === undefined || !Number.isFinite(value)) return;
      found.push([zeroCentred ? Math.abs(value) : value, count]);
      total += count;
    });
  }
  found.sort((one, other) => one[0] - other[0]);
  const outside = 1 - Math.max(1, Math.min(100, percent)) / 100;
  const hi = quantile(found, total * (1 - (zeroCentred ? outside : outside / 2)));
  return zeroCentred ? [-hi, hi] : [quantile(found, (total * outside) / 2), hi];
}

function counts(bytes: Uint8Array): Uint32Array {
  const found = new Uint32Array(256);
  for (let n = 0; n < bytes.length; n++) found[bytes[n]]++;
  return found;
}

function quantile(found: [number, number][], wanted: number): number {
  let passed = 0;
  for (const [value, count] of found) if ((passed += count) >= wanted) return value;
  return found.length ? found[found.length - 1][0] : 0;
}

function widened(lo: number, hi: number, zeroCentred: boolean): [number, number] {
  if (!(Number.isFinite(lo) && Number.isFinite(hi))) [lo, hi] = [-1, 1];
  if (lo > hi) [lo, hi] = [hi, lo];
  if (zeroCentred) hi = Math.max(Math.abs(lo), Math.abs(hi));
  if (zeroCentred) lo = -hi;
  if (hi > lo) return [lo, hi];
  return lo ? [lo - Math.abs(lo) / 2, lo + Math.abs(lo) / 2] : [-1, 1];
}

function known({ lo, hi, count }: FrameHead): boolean {
  return count > 0 && Number.isFinite(lo) && Number.isFinite(hi) && hi >= lo;
}
