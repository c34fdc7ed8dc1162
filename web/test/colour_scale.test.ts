// Colours and formatted numbers, as in src/torcheer/drawing/looks/colour_scale.py.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import { ColourScale } from "../src/graph/render/colour_scale";
import { rampAt, totalAmount } from "../src/graph/render/quantity_scale";
import type { PlacedBox } from "../src/graph/layout/placement";

const RAMP = ["#00224e", "#7f7f7f", "#fee838"];
const STRANGE = "#c2187f";
const box = (firstItem: number, size = 0): PlacedBox =>
  ({ firstItem, view: { fullPlan: size ? { size } : null, composed: null } }) as unknown as PlacedBox;

test("a ramp goes from its first to its last colour", () => {
  deepEqual(rampAt(RAMP, 0), { fill: "#00224e", ink: "#ffffff" });
  deepEqual(rampAt(RAMP, 1), { fill: "#fee838", ink: "#1c2127" });
  equal(rampAt(RAMP, 7).fill, "#fee838");
  equal(rampAt(RAMP, 0.25).fill, "#405167"); // halves are rounded up, a difference nobody can see
});

test("a folded box stands for the sum of its items, of gradients for the mean", () => {
  const values = [1, null, 3, 8];
  equal(new ColourScale("flops", values, RAMP, STRANGE).value(box(0, 3)), 4);
  equal(new ColourScale("gradient", values, RAMP, STRANGE).value(box(0, 3)), 2);
  equal(new ColourScale("flops", values, RAMP, STRANGE).value(box(1)), null);
  equal(new ColourScale("flops", values, RAMP, STRANGE).value(box(3)), 8);
});

test("colours spread over what is shown, by powers of ten, four at most", () => {
  const colouring = new ColourScale("flops", [1, 10, 1e9], RAMP, STRANGE);
  colouring.fit([box(0), box(1)]);
  deepEqual(colouring.range, [0, 1]);
  colouring.fit([box(0), box(1), box(2)]);
  deepEqual(colouring.range, [5, 9]);
  equal(colouring.paint(box(2), "op")!.fill, "#fee838");
  equal(colouring.paint(box(2), "input"), null);
});

test("values are told in their unit", () => {
  const tell = (way: string, value: number): string => new ColourScale(way, [], RAMP, STRANGE).formatValue(value);
  equal(tell("time", 0.0123456), "12.3 ms");
  equal(tell("time", 2.5e-5), "25 µs");
  equal(tell("memory", 1536), "1.5 KB");
  equal(tell("memory", 12), "12 B");
  equal(tell("flops", 18_400), "18.4k");
  equal(tell("gradient", 0.000123), "0.00012");
});

test("NaN and infinity colour the boxes that hold them, and no other", () => {
  const colouring = new ColourScale("gradient", [1, "NaN", 2, "Infinity", 4], RAMP, STRANGE);
  equal(colouring.value(box(0)), 1);
  ok(Number.isNaN(colouring.value(box(1))));
  ok(Number.isNaN(colouring.value(box(0, 5))));
  equal(colouring.value(box(2)), 2);
  equal(colouring.value(box(2, 3)), Infinity);
  equal(colouring.value(box(4)), 4);
  colouring.fit([0, 1, 2, 3, 4].map((at) => box(at)));
  deepEqual(colouring.range, [0, Math.log10(4)]);
  equal(colouring.paint(box(1), "op")!.fill, STRANGE);
  equal(colouring.paint(box(4), "op")!.fill, "#fee838");
  deepEqual(
    [NaN, Infinity].map((value) => colouring.formatValue(value)),
    ["NaN", "∞"],
  );
});

test("a list has together what a box of them has: the sum, of gradients the mean, NaN before infinity", () => {
  equal(totalAmount("flops", [1, null, 3]), 4);
  equal(totalAmount("gradient", [1, null, 3]), 2);
  equal(totalAmount("time", [null, null]), null);
  ok(Number.isNaN(totalAmount("update", [1, "NaN", "Infinity"])));
  equal(totalAmount("update", [1, "Infinity"]), Infinity);
});
