// Small pictures in the boxes of the graph: whose they are, which cells they show, lines, and their space.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import { reservePictureSpace } from "../src/graph/layout/picture_space";
import type { PlacedBox } from "../src/graph/layout/placement";
import type { Part, Payload, Plan } from "../src/graph/payload";
import { BoxLayers } from "../src/studio/graph/box_layers";
import { loggedLine, sparkPath } from "../src/studio/graph/spark_line";
import { arrangeCells } from "../src/studio/graph/thumbnail_layout";
import type { Layer } from "../src/studio/messages";
import type { Table } from "../src/studio/tables/table_rows";

const part = (leaf: number, plan = -1): Part => ({ leaf, plan, titles: [-1, -1] });
const plan = (sort: Plan["sort"], parts: Part[], first: number[], size: number): Plan =>
  ({ sort, names: parts.map(String), parts, first, size, kind: "", times: 1 }) as unknown as Plan;

// input, a linear, its activation, an addition between layers, a block of two layers, a pill of nothing
const data = {
  root: 0,
  plans: [
    plan("root", [part(0), part(1), part(2), part(3), part(4, 1), part(5, 2)], [0, 1, 2, 3, 4, 6], 8),
    plan("module", [part(6), part(7)], [0, 1], 2),
    plan("pill", [part(8), part(8)], [0, 1], 2),
  ],
} as unknown as Payload;
const layers = ["Input", "fc", "fc", "", "block.a", "block.b", "", ""];
const boxLayers = new BoxLayers(data, layers, (module) => (module === "block" ? "block" : undefined));

function box(firstItem: number, planNumber = -1, address = ""): PlacedBox {
  const fullPlan = planNumber < 0 ? null : data.plans[planNumber];
  return { view: { composed: null, fullPlan }, firstItem, address } as unknown as PlacedBox;
}

test("of several items of a layer the first has its picture, operations between layers have none", () => {
  deepEqual([0, 1, 2, 3].map((item) => boxLayers.layerOf(box(item))), ["Input", "fc", "", ""]); // prettier-ignore
});

test("a folded module shows what it returned, or else its last layer; an open one and a pill show nothing", () => {
  equal(boxLayers.layerOf(box(4, 1, "block")), "block");
  equal(boxLayers.layerOf(box(4, 1, "elsewhere")), "block.b");
  equal(boxLayers.layerOf(box(6, 2)), "");
  const open = { ...box(4, 1, "block"), view: { composed: {}, fullPlan: data.plans[1] } } as unknown as PlacedBox;
  equal(boxLayers.layerOf(open), "");
});

test("only boxes that have a picture get space for it, which can be taken back", () => {
  deepEqual([...boxLayers.leaves].sort(), [0, 1, 4, 6, 7]);
  const leaves = [0, 1, 2].map(() => ({ boxes: [{ height: 38 }, { height: 38 }] }));
  const payload = { leaves } as unknown as Payload;
  const heights = (): number[] => payload.leaves.map(({ boxes }) => boxes[1].height);
  reservePictureSpace(payload, new Set([0, 2]), 30);
  deepEqual(heights(), [68, 38, 68]);
  reservePictureSpace(payload, new Set([1]), 30);
  deepEqual(heights(), [38, 68, 38]);
  reservePictureSpace(payload, new Set([1]), 0);
  deepEqual(heights(), [38, 38, 38]);
});

test("units in a row are wrapped to fill the place, each once", () => {
  const { width, height, cells, keepsShape } = arrangeCells({ grid: [1, 1, 1, 10], count: 10 }, 1, 4);
  deepEqual([width, height, keepsShape], [7, 2, false]);
  deepEqual([...cells], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1]);
});

test("of feature maps the first are shown, whole, with a line between them", () => {
  const { width, height, cells, keepsShape } = arrangeCells({ grid: [4, 4, 12, 12], count: 2304 }, 3, 4);
  deepEqual([width, height, keepsShape], [3 * 13 - 1, 12, true]);
  equal(cells[13], 144, "the second map begins after the line");
  equal(cells[12], -1);
  equal(cells[11 * width], 132, "the last row of the first map");
});

test("maps too small to be told apart are one plane, in the order of the tiles", () => {
  const { width, height, cells } = arrangeCells({ grid: [2, 2, 2, 2], count: 16 }, 3, 4);
  deepEqual([width, height], [4, 4]);
  deepEqual([...cells.slice(0, 8)], [0, 1, 4, 5, 2, 3, 6, 7]);
});

const layer = { name: "fc", also: ["fc.weight"] } as unknown as Layer;
const table = (columns: Record<string, number[]>): Map<string, Table> => {
  const head = { name: "fc output", layer: "fc", x: "Step", columns: [] };
  return new Map([["fc output", { head, columns, count: columns.Step.length } as unknown as Table]]);
};

test("a line is the norm by step, up to the step that is looked at", () => {
  const tables = table({ Step: [0, 10, 20], norm: [1, 3, 2], mean: [0, 0, 0] });
  const line = loggedLine(tables, layer, "Act", 15);
  deepEqual([line?.statistic, line?.points.map(({ y }) => y)], ["norm", [1, 3]]);
  equal(loggedLine(tables, layer, "Act", 5), null, "one point is no line");
  equal(loggedLine(new Map(), layer, "Act", Infinity), null);
});

test("a line spans its place, a level one runs through the middle, and a table without a norm has its mean", () => {
  equal(sparkPath([{ x: 0, y: 1 }, { x: 5, y: 3 }], 100, 20), "M0.0 20.0L100.0 0.0"); // prettier-ignore
  equal(sparkPath([{ x: 0, y: 2 }, { x: 1, y: 2 }], 100, 20), "M0.0 10.0L100.0 10.0"); // prettier-ignore
  ok(loggedLine(table({ Step: [0, 1], mean: [0, 1] }), layer, "Act", Infinity)?.statistic === "mean");
});
