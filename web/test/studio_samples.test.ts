// Samples: which are shown at a step, pixels, waveforms, shares of a matrix.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import type { SampleHead } from "../src/studio/messages";
import { groupsAt, indexOfStep, stepsOf } from "../src/studio/samples/sample_groups";
import { displayScale, normalised, toRgba, waveform } from "../src/studio/samples/sample_shapes";

let count = 0;
const sample = (name: string, step: number, item = -1): SampleHead => ({
  id: count++,
  name,
  kind: "text",
  step,
  item,
  caption: "",
  time_secs: 0,
});
const samples = [sample("a", 0), sample("b", 5, 0), sample("b", 5, 1), sample("a", 10), sample("c", 10)];
const shown = (step: number) =>
  groupsAt(samples, step).map(({ name, samples: list }) => [name, list.map((head) => head.step)]);

test("of each name the last samples up to a step are shown, in the order in which the names came", () => {
  deepEqual(stepsOf(samples), [0, 5, 10]);
  deepEqual(shown(-1), [
    ["a", [10]],
    ["b", [5, 5]],
    ["c", [10]],
  ]);
  deepEqual(shown(5), [
    ["a", [0]],
    ["b", [5, 5]],
    ["c", []],
  ]);
  deepEqual(shown(0), [
    ["a", [0]],
    ["b", []],
    ["c", []],
  ]);
});

test("a step between two is the one before it", () => {
  deepEqual(
    [-1, 0, 4, 5, 99].map((step) => indexOfStep([0, 5, 10], step)),
    [2, 0, 0, 1, 2],
  );
  equal(indexOfStep([5, 10], 2), 0);
});

test("small images grow by whole numbers, large ones shrink to fit", () => {
  deepEqual([displayScale(28, 28, 296), displayScale(200, 10, 296), displayScale(592, 100, 296)], [10, 1, 0.5]);
});

test("grey, RGB and RGBA become RGBA", () => {
  deepEqual([...toRgba(new Uint8Array([7]), 1, 1, 1)], [7, 7, 7, 255]);
  deepEqual([...toRgba(new Uint8Array([1, 2, 3]), 1, 1, 3)], [1, 2, 3, 255]);
  deepEqual([...toRgba(new Uint8Array([1, 2, 3, 4]), 1, 1, 4)], [1, 2, 3, 4]);
  deepEqual([...toRgba(new Uint8Array([]), 1, 1, 1)].slice(3), [255]); // too few bytes are black
});

test("each column of a waveform has its least and largest number", () => {
  deepEqual(waveform(new Int16Array([1, -5, 3, 9]), 2), [
    [-5, 1],
    [3, 9],
  ]);
  deepEqual(waveform(new Int16Array([4]), 3), [
    [4, 4],
    [4, 4],
    [4, 4],
  ]);
  deepEqual(waveform(new Int16Array([]), 1), [[0, 0]]);
});

test("rows without a sum have no shares", () => {
  deepEqual(
    normalised([
      [8, 2],
      [0, 0],
      [NaN, 1],
    ]),
    [
      [0.8, 0.2],
      [0, 0],
      [0, 0],
    ],
  );
});
