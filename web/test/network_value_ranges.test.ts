// Value ranges that the colours span.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import type { FrameHead, Layer } from "../src/studio/messages";
import {
  defaultRangeSetting,
  baselineOf,
  computeRange,
  layerSetting,
  nonFiniteIn,
  valueOf,
  type Frame,
  type RangeSetting,
} from "../src/studio/network/values/value_ranges";

const head = (lo: number, hi: number, count: number): FrameHead => ({
  look: 1, moment: 0, layer: "L", variable: "Act", item: 0, grid: [1, 1, 1, count], block: [1, 1], count, lo, hi, nans: 0,
  infs: 0, negative_infs: 0, raster: false,
}); // prettier-ignore
const frame = (lo: number, hi: number, bytes: number[]): Frame => ({
  head: head(lo, hi, bytes.length),
  bytes: Uint8Array.from(bytes),
});
const setting = (part: Partial<RangeSetting>): RangeSetting => ({
  mode: "auto",
  min: -1,
  max: 1,
  percent: 99,
  zeroCentred: false,
  map: "ColdHot",
  ...part,
});

test("automatic is from the least to the largest of all layers", () => {
  deepEqual(computeRange([frame(0, 3, [1, 251]), frame(-1, 2, [1, 251])], setting({})), [-1, 3]);
});

test("zero-centred goes as far down as up", () => {
  deepEqual(computeRange([frame(-1, 3, [1, 251])], setting({ zeroCentred: true })), [-3, 3]);
  deepEqual(computeRange([frame(2, 3, [1, 251])], setting({ zeroCentred: true })), [-3, 3]);
});

test("fixed is what was typed, the right way round", () => {
  deepEqual(computeRange([], setting({ mode: "fixed", min: 5, max: 2 })), [2, 5]);
});

test("a percentile leaves out the few that stand out", () => {
  const bytes = [...Array<number>(990).fill(140), ...Array<number>(10).fill(251)];
  const [lo, hi] = computeRange([frame(-1, 1, bytes)], setting({ mode: "percentile", percent: 95, zeroCentred: true }));
  ok(hi < 0.2 && lo === -hi);
  const zeros = [...Array<number>(990).fill(126), ...Array<number>(10).fill(251)];
  equal(computeRange([frame(-1, 1, zeros)], setting({ mode: "percentile", percent: 95, zeroCentred: true }))[1], 1);
  equal(computeRange([frame(-1, 1, bytes)], setting({ mode: "percentile", percent: 100, zeroCentred: true }))[1], 1);
});

test("bytes without data count for no percentile", () => {
  const range = computeRange([frame(0, 1, [0, 0, 0, 251, 1])], setting({ mode: "percentile", percent: 100 }));
  deepEqual(range, [0, 1]);
});

test("where all values are the same, or there are none, the range is still one", () => {
  deepEqual(computeRange([], setting({})), [-1, 1]);
  deepEqual(computeRange([frame(0, 0, [1])], setting({})), [-1, 1]);
  deepEqual(computeRange([frame(4, 4, [1])], setting({})), [2, 6]);
  deepEqual(computeRange([frame(-2, -2, [1])], setting({ zeroCentred: true })), [-2, 2]);
});

test("a byte stands for a value, and 0 for none", () => {
  equal(valueOf(head(-1, 1, 1), 1), -1);
  equal(valueOf(head(-1, 1, 1), 251), 1);
  ok(Math.abs(valueOf(head(-1, 1, 1), 126)!) < 1e-9);
  equal(valueOf(head(-1, 1, 1), 0), undefined);
  deepEqual(
    [253, 254, 255].map((byte) => valueOf(head(-1, 1, 1), byte)),
    [NaN, Infinity, -Infinity],
  );
});

test("what is not finite counts for no range, and is told apart", () => {
  const strange = { ...frame(0, 1, [253, 254, 255, 251, 1]) };
  strange.head = { ...strange.head, nans: 1, infs: 2, negative_infs: 1 };
  deepEqual(computeRange([strange], setting({ mode: "percentile", percent: 100 })), [0, 1]);
  deepEqual(nonFiniteIn([strange, frame(0, 1, [1])]), ["nan", "plus", "minus"]);
  deepEqual(nonFiniteIn([{ ...strange, head: { ...strange.head, nans: 0, negative_infs: 2 } }]), ["minus"]);
  deepEqual(nonFiniteIn([frame(0, 1, [1])]), []);
});

test("bars stand on zero, or on the end that is nearest to it", () => {
  equal(baselineOf([-1, 1]), 0);
  equal(baselineOf([2, 5]), 2);
  equal(baselineOf([-5, -2]), -2);
});

test("a variable with a range of its own begins with it", () => {
  const variable = { name: "Act", of: "unit", doc: "", range: [0, 1] as [number, number], zero_centred: false };
  deepEqual(defaultRangeSetting(variable), {
    mode: "fixed",
    min: 0,
    max: 1,
    percent: 99,
    zeroCentred: false,
    map: "ColdHot",
  });
  equal(defaultRangeSetting({ ...variable, range: null }).mode, "layer");
});

test("attention weights span 0 to 1 in sequential colours, however alike they are; other values do not", () => {
  const attention = { name: "attn.weights", range: [0, 1] } as Layer;
  const byLayer = setting({ mode: "layer", zeroCentred: true });
  const uniform = frame(1 / 9, 1 / 9, [1, 1]);
  const own = layerSetting(byLayer, attention, "Act");
  deepEqual([computeRange([uniform], own), own.map], [[0, 1], "Viridis"]);
  equal(layerSetting(byLayer, attention, "Grad"), byLayer);
  equal(layerSetting(byLayer, { ...attention, range: null }, "Act"), byLayer);
  const chosen = setting({ mode: "percentile" });
  equal(layerSetting(chosen, attention, "Act"), chosen);
});
