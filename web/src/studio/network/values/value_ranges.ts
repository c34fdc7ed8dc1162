// Value ranges: which values the colours span, and which colour map.
import type { FrameHead, Layer, Variable } from "../../messages";
import type { NonFinite } from "../../non_finite";
import { COLOUR_MAPS } from "./colour_maps";

const SEQUENTIAL_MAP = "Viridis"; // where values lie between two ends by their nature

export interface Frame {
  head: FrameHead;
  bytes: Uint8Array;
}

export type RangeMode = "auto" | "layer" | "percentile" | "fixed";

export interface RangeSetting {
  mode: RangeMode; // "layer": automatic, separate for each layer
  min: number; // for "fixed"
  max: number;
  percent: number; // for "percentile": this percentage of the values lies inside
  zeroCentred: boolean;
  map: string; // the colour map's name
}

/** The default setting of a variable. */
export function defaultRangeSetting(variable: Variable | undefined): RangeSetting {
  const [min, max] = variable?.range ?? [-1, 1];
  const mode = variable?.range ? "fixed" : "layer"; // one strong layer would leave the others grey
  return { mode, min, max, percent: 99, zeroCentred: variable?.zero_centred ?? true, map: COLOUR_MAPS[0].name };
}

/** The setting for one layer: values that lie in a range by their nature, as attention weights do, span all of it. */
export function layerSetting(setting: RangeSetting, layer: Layer, variable: string): RangeSetting {
  if (!layer.range || variable !== "Act" || setting.mode !== "layer") return setting;
  const map = setting.map === COLOUR_MAPS[0].name ? SEQUENTIAL_MAP : setting.map;
  return { ...setting, mode: "fixed", min: layer.range[0], max: layer.range[1], zeroCentred: false, map };
}

/** The range over these frames; in mode "layer", called with one frame at a time. */
export function computeRange(frames: readonly Frame[], setting: RangeSetting): [number, number] {
  if (setting.mode === "fixed") return widenRange(setting.min, setting.max, setting.zeroCentred);
  const range = setting.mode === "percentile" ? percentileRange(frames, setting) : extremes(frames);
  const [lo, hi] = range[0] < range[1] ? range : extremes(frames); // if nearly all values are zero, use the extremes
  return widenRange(lo, hi, setting.zeroCentred);
}

const MAX_VALUE_BYTE = 251; // byte 1 is lo, this byte is hi; 0 is no data
const FIRST_NON_FINITE_BYTE = 253;
const NON_FINITE_KINDS: readonly NonFinite[] = ["nan", "plus", "minus"]; // kinds, in the order of their bytes

/** Decode a byte of a frame; undefined if it is no data. */
export function valueOf(head: FrameHead, byte: number): number | undefined {
  if (!byte) return undefined;
  if (byte >= FIRST_NON_FINITE_BYTE)
    return { nan: NaN, plus: Infinity, minus: -Infinity }[NON_FINITE_KINDS[byte - FIRST_NON_FINITE_BYTE]];
  return head.lo + ((head.hi - head.lo) * (byte - 1)) / (MAX_VALUE_BYTE - 1);
}

/** The non-finite kinds in these frames. */
export function nonFiniteIn(frames: Iterable<Frame>): NonFinite[] {
  const kinds = new Set<NonFinite>();
  for (const { head } of frames) {
    if (head.nans) kinds.add("nan");
    if (head.infs > head.negative_infs) kinds.add("plus");
    if (head.negative_infs) kinds.add("minus");
  }
  return NON_FINITE_KINDS.filter((kind) => kinds.has(kind));
}

/** The position of a value in a range, from 0 to 1. */
export function fractionIn(range: [number, number], value: number): number {
  return Math.max(0, Math.min(1, (value - range[0]) / (range[1] - range[0])));
}

/** The value that bars stand on: zero, or if it is outside the range, the nearest end. */
export function baselineOf([lo, hi]: [number, number]): number {
  return Math.max(lo, Math.min(hi, 0));
}

function extremes(frames: readonly Frame[]): [number, number] {
  let [lo, hi] = [Infinity, -Infinity];
  for (const { head } of frames) {
    if (!hasFiniteRange(head)) continue;
    [lo, hi] = [Math.min(lo, head.lo), Math.max(hi, head.hi)];
  }
  return [lo, hi];
}

/** The range without the outermost values; if zero-centred, by distance from zero. */
function percentileRange(frames: readonly Frame[], { percent, zeroCentred }: RangeSetting): [number, number] {
  const valueCounts: [number, number][] = []; // value, count
  let total = 0;
  for (const frame of frames) {
    if (!hasFiniteRange(frame.head)) continue;
    countBytes(frame.bytes).forEach((count, byte) => {
      const value = valueOf(frame.head, byte);
      if (!count || value === undefined || !Number.isFinite(value)) return;
      valueCounts.push([zeroCentred ? Math.abs(value) : value, count]);
      total += count;
    });
  }
  valueCounts.sort((first, second) => first[0] - second[0]);
  const outside = 1 - Math.max(1, Math.min(100, percent)) / 100;
  const hi = quantile(valueCounts, total * (1 - (zeroCentred ? outside : outside / 2)));
  return zeroCentred ? [-hi, hi] : [quantile(valueCounts, (total * outside) / 2), hi];
}

function countBytes(bytes: Uint8Array): Uint32Array {
  const counts = new Uint32Array(256);
  for (let n = 0; n < bytes.length; n++) counts[bytes[n]]++;
  return counts;
}

function quantile(valueCounts: [number, number][], rank: number): number {
  let cumulative = 0;
  for (const [value, count] of valueCounts) if ((cumulative += count) >= rank) return value;
  return valueCounts.length ? valueCounts[valueCounts.length - 1][0] : 0;
}

function widenRange(lo: number, hi: number, zeroCentred: boolean): [number, number] {
  if (!(Number.isFinite(lo) && Number.isFinite(hi))) [lo, hi] = [-1, 1];
  if (lo > hi) [lo, hi] = [hi, lo];
  if (zeroCentred) hi = Math.max(Math.abs(lo), Math.abs(hi));
  if (zeroCentred) lo = -hi;
  if (hi > lo) return [lo, hi];
  return lo ? [lo - Math.abs(lo) / 2, lo + Math.abs(lo) / 2] : [-1, 1];
}

function hasFiniteRange({ lo, hi, count }: FrameHead): boolean {
  return count > 0 && Number.isFinite(lo) && Number.isFinite(hi) && hi >= lo;
}
