// Histograms over time: which bins are shown, and how the value axis reads.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import { ridgePath, ridgesOf } from "../src/studio/plots/ridgelines";

import type { Json } from "../src/studio/messages";
import { binTicks, buildHistogram, histogramRows } from "../src/studio/plots/histogram_view";
import { emptyTable, withRows, type Table } from "../src/studio/tables/table_rows";

const EDGES = [-4, -2, -1, 1, 2, 4];

function table(steps: number[], histograms: Json[], edges = EDGES): Table {
  const column = { shape: [edges.length + 1], plotted: false, fixed: null, error: "" };
  const columns = [
    { ...column, name: "Step", type: "int", edges: [] },
    { ...column, name: "histogram", type: "tensor", edges },
  ];
  return withRows(emptyTable({ name: "t", title: "T", x: "Step", legend: "", layer: "", columns }), {
    first: 0,
    columns: { Step: steps, histogram: histograms },
  });
}

test("only bins that ever held a value are shown, and rows without a histogram are left out", () => {
  const view = buildHistogram(table([0, 10, 20], [[0, 0, 1, 2, 0, 0, 0], null, [0, 0, 0, 3, 1, 0, 0]]))!;
  deepEqual(view.x, [0, 20]);
  deepEqual(
    view.bins.map(({ low, high }) => [low, high]),
    [
      [-2, -1],
      [-1, 1],
      [1, 2],
    ],
  );
  deepEqual(
    [view.counts, view.totals, view.largest],
    [
      [
        [1, 2, 0],
        [0, 3, 1],
      ],
      [3, 4],
      0.75,
    ],
  );
  deepEqual(view.bounds, [-10, 10, 30]);
});

test("a long stretch of values that never occurred is one broken bin", () => {
  const view = buildHistogram(table([1], [[5, 0, 0, 0, 0, 0, 2]]))!;
  deepEqual(
    view.bins.map(({ low, high, isGap }) => [low, high, isGap]),
    [
      [-Infinity, -4, false],
      [-4, 4, true],
      [4, Infinity, false],
    ],
  );
  deepEqual(view.bounds, [0.5, 1.5]);
});

test("the axis reads the bins' limits, zero in the middle of its bin", () => {
  const view = buildHistogram(table([1], [[0, 1, 1, 1, 1, 1, 0]]))!;
  deepEqual(
    binTicks(view, 20).map(({ at, text }) => [at, text]),
    [
      [0, -4],
      [1, -2],
      [2, -1],
      [2.5, 0],
      [3, 1],
      [4, 2],
      [5, 4],
    ],
  );
  ok(binTicks(view, 3).length <= 5);
});

test("values on one side of zero have ticks too, and infinite limits have none", () => {
  const view = buildHistogram(table([1], [[0, 0, 0, 0, 1, 1, 1]]))!;
  deepEqual(
    binTicks(view, 20).map(({ at, text }) => [at, text]),
    [
      [0, 1],
      [1, 2],
      [2, 4],
    ],
  );
});

test("a table without bins has no histogram, and odd cells are no counts", () => {
  equal(buildHistogram(table([1], [[1, 2]], [])), null);
  equal(buildHistogram(table([1, 2], [[1, 2], "x"])), null);
});

test("what is saved has a row for each step", () => {
  const { names, rows } = histogramRows(buildHistogram(table([3], [[0, 0, 0, 2, 1, 0, 0]]))!);
  deepEqual([names, rows], [["Step", "-1 to 1", "1 to 2"], [[3, 2, 1]]]);
});

test("ridges are the columns from the first to the last, at most forty", () => {
  const x = Array.from({ length: 100 }, (_, index) => index * 10);
  const bins = [
    { low: 0, high: 1, isGap: false },
    { low: 1, high: 2, isGap: false },
  ];
  const counts = x.map(() => [1, 3]);
  const view = { xLabel: "Step", x, bounds: [], bins, counts, totals: x.map(() => 4), largest: 0.75 };
  const ridges = ridgesOf(view);
  deepEqual([ridges.length, ridges[0].x, ridges[39].x, ridges[0].base, ridges[39].base], [40, 0, 990, 0, 1]);
  deepEqual(ridges[7].heights, [1 / 3, 1]);
  equal(ridgePath([0, 1], 10, 50, 20), "M0 50.0L2.5 50.0L7.5 30.0L10.0 50.0Z");
});
