import assert from "node:assert/strict";
import { test } from "node:test";

import type { FrameHead, PlacedLayer } from "../src/studio/messages";
import {
  pictureOf,
  pixelFraction,
  pixelValues,
  redCellUnder,
  shadesOf,
  type RgbPicture,
} from "../src/studio/network/scene/rgb_picture";
import type { Frame } from "../src/studio/network/values/value_ranges";

const HEAD: FrameHead = {
  look: 1, moment: 0, layer: "Input", variable: "Act", item: 0, grid: [2, 2, 8, 10], block: [1, 1], count: 320,
  lo: 0, hi: 1, nans: 0, infs: 0, negative_infs: 0, raster: false,
}; // prettier-ignore

function placed(shape: number[], grid: [number, number, number, number], view = "picture"): PlacedLayer {
  const layer = { name: "Input", shape, kind: "Input", view, place: null, relation: "", other: "", align: ["", ""] as [string, string], space: null, also: [], holds: false, range: null }; // prettier-ignore
  return { layer, units: shape.reduce((a, b) => a * b), grid, size: [1, 1], place: [0, 0, 0] };
}

const FIRST = placed([3, 8, 10], [2, 2, 8, 10]);
const LAST = placed([8, 10, 3], [1, 1, 8, 30]);
const frame = (part: Partial<FrameHead> = {}, bytes = new Uint8Array(320).fill(1)): Frame => ({
  head: { ...HEAD, ...part },
  bytes,
});
const shown = (layer: PlacedLayer, part: Partial<FrameHead> = {}): RgbPicture => pictureOf(layer, frame(part))!;

test("values are shades of the range that pictures usually have", () => {
  assert.deepEqual(shadesOf(0.1, 0.6), [0, 1]);
  assert.deepEqual(shadesOf(-0.9, 0.6), [-1, 1]);
  assert.deepEqual(shadesOf(-2.1, 2.6), [-2.1, 2.6], "normalised by mean and deviation");
  assert.deepEqual(shadesOf(3, 250), [0, 255]);
  assert.equal(shadesOf(-40, 900), null, "a field of numbers is no picture");
});

test("gradients, rasters, other views and values unlike a picture's are not drawn as one", () => {
  assert.equal(pictureOf(FIRST, frame({ variable: "Grad" })), null);
  assert.equal(pictureOf(FIRST, frame({ raster: true })), null);
  assert.equal(pictureOf(FIRST, frame({ hi: 1e4 })), null);
  assert.equal(pictureOf(placed([3, 8, 10], [1, 3, 8, 10], "maps"), frame()), null);
  assert.equal(pictureOf(LAST, frame({ grid: [1, 1, 8, 15], block: [1, 2] })), null, "blocks that mix channels");
});

test("a point of the plane is a pixel, and its middle leads back to it", () => {
  for (const [layer, step] of [[FIRST, 1], [LAST, 3]] as const) {
    const picture = shown(layer, layer === LAST ? { grid: [1, 1, 8, 30] } : {});
    const cell = redCellUnder(picture, 0.55, 0.3); // column 5, row 2
    assert.equal(cell, (2 * 10 + 5) * step);
    assert.deepEqual(pixelFraction(picture, cell), [0.55, 2.5 / 8]);
    assert.equal(redCellUnder(picture, 1, 0.5), -1);
  }
}); // prettier-ignore

test("red, green and blue of a pixel come from three tiles, or from three cells side by side", () => {
  const bytes = new Uint8Array(320).fill(1);
  [25, 80 + 25, 160 + 25].forEach((cell, n) => (bytes[cell] = [251, 126, 0][n]));
  assert.deepEqual(pixelValues(shown(FIRST), frame({}, bytes), 25), [1, 0.5, undefined]);
  const beside = new Uint8Array(240).fill(1);
  beside.set([251, 126, 1], 75);
  const part = { grid: [1, 1, 8, 30] as [number, number, number, number] };
  assert.deepEqual(pixelValues(shown(LAST, part), frame(part, beside), 76), [1, 0.5, 0]);
});

test("a pixel of a reduced picture stands for a block of the layer's", () => {
  const picture = shown(FIRST, { grid: [2, 2, 4, 5], block: [2, 2] });
  assert.deepEqual(pixelFraction(picture, 7), [0.5, 0.375]);
});
