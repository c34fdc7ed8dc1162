// compose.ts and edge_paths.ts give, to the last bit, what Python gives: tests/test_drawing_vectors.py writes the
// vectors.
import { deepEqual, equal, ok } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { compose } from "../src/graph/layout/compose";
import { readBox, readLayout } from "../src/graph/payload";
import { arrowPath, linePath, formatNumber } from "../src/graph/render/edge_paths";

const vectors = JSON.parse(readFileSync("../tests/data/compose.json", "utf8"));
const layouts = vectors.layouts.map(readLayout);

test("there are vectors", () => ok(vectors.cases.length >= 100));

vectors.cases.forEach((wanted: any, n: number) => {
  const { down, limit, title, composed } = wanted;
  test(`case ${n}: layout ${wanted.layout}, ${down ? "down" : "right"}, limit ${limit ?? "none"}`, () => {
    const words = title && { width: title[0], lines: title[1] };
    const boxes = wanted.boxes.map(readBox);
    const result = compose(layouts[wanted.layout], boxes, words, down, limit ?? Infinity, vectors.metrics);
    for (const key in composed) {
      const wanted = key === "box" ? readBox(composed.box) : composed[key];
      equal(JSON.stringify(result[key as keyof typeof result]), JSON.stringify(wanted), key);
    }
  });
});

test("edges are written as Python writes them", () => {
  const { paths, lines, arrows } = vectors.glyphs;
  deepEqual(paths.map(linePath), lines);
  deepEqual(paths.map(arrowPath), arrows);
});

test("numbers are written as Python writes them", () => {
  for (const [value, text] of vectors.glyphs.numbers) equal(formatNumber(value), text);
});
