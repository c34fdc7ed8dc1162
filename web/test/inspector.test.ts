// The inspector of a layer: exact text, decoding, axes, the layout of its picture, logged series.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as axes from "../src/studio/inspector/axis_choice";
import { exactText } from "../src/studio/inspector/exact_text";
import { pickTensor } from "../src/studio/inspector/inspector_state";
import { firstTable, loggedTables, seriesOf } from "../src/studio/inspector/logged_series";
import { cellUnder, layOut, nextCell } from "../src/studio/inspector/picture_layout";
import { SliceBlock } from "../src/studio/inspector/slice_block";
import type { Layer, SliceFrame, TensorHead } from "../src/studio/messages";
import { emptyTable, withRows } from "../src/studio/tables/table_rows";

const HEAD: TensorHead = {
  variable: "Act",
  parameter: "",
  doc: "",
  why: "",
  type: "float32",
  shape: [4, 8, 6, 5],
  axes: ["batch", "channel", "row", "column"],
  first: 0,
  tiles: 1,
  rows: 2,
  columns: 3,
  items: 4,
};

function blockOf(part: Partial<SliceFrame>, values: ArrayLike<number>): SliceBlock {
  const cells = new Float32Array(values);
  const head: SliceFrame = {
    question: 1,
    count: cells.byteLength,
    moment: 0,
    type: "float32",
    coded: "float32",
    shape: [1, 1, cells.length],
    firsts: [0, 0, 0],
    counts: [1, 1, cells.length],
    block: [1, 1],
    code: "",
    code_note: "",
    ...part,
  };
  return new SliceBlock(head, new Uint8Array(cells.buffer));
}

test("a number is written with the digits that tell it from its neighbours in its own type", () => {
  const f32 = Math.fround;
  assert.equal(exactText(f32(0.1), "float32"), "0.1");
  assert.equal(exactText(f32(1 / 3), "float32"), "0.33333334");
  assert.equal(exactText(f32(1e-40), "float32"), "1e-40");
  assert.equal(exactText(f32(3.4028235e38), "float32"), "3.4028235e+38");
  assert.equal(exactText(0.0999755859375, "float16"), "0.1");
  assert.equal(exactText(65504, "float16"), "65504");
  assert.equal(exactText(0.10009765625, "bfloat16"), "0.1");
  assert.equal(exactText(0.333984375, "bfloat16"), "0.334");
  assert.equal(exactText(0.1, "float64"), "0.1");
  assert.equal(exactText(0.25, "float8_e8m0fnu"), "0.25");
  assert.equal(exactText(-0, "float32"), "-0");
});

test("whole numbers, truth, NaN and the infinities are written as they are", () => {
  assert.equal(exactText(9223372036854775807n, "int64"), "9223372036854775807");
  assert.equal(exactText(-7, "int8"), "-7");
  assert.deepEqual([exactText(1, "bool"), exactText(0, "bool")], ["True", "False"]);
  assert.deepEqual([NaN, Infinity, -Infinity].map((value) => exactText(value, "float32")), ["NaN", "∞", "−∞"]); // prettier-ignore
});

test("64-bit whole numbers of a slice keep all their digits", () => {
  const cells = new BigInt64Array([2n ** 53n + 1n, -(2n ** 63n)]);
  const head = { ...blockOf({}, [0, 0]).head, type: "int64", coded: "int64" as const };
  const block = new SliceBlock(head, new Uint8Array(cells.buffer));
  assert.deepEqual([block.textAt(0), block.textAt(1)], ["9007199254740993", "-9223372036854775808"]);
});

test("a slice decodes from bytes that begin anywhere", () => {
  const bytes = new Uint8Array(new ArrayBuffer(13), 1, 12);
  bytes.set(new Uint8Array(new Float32Array([1, 2, 3]).buffer));
  const block = new SliceBlock(blockOf({}, [0, 0, 0]).head, bytes);
  assert.deepEqual([0, 1, 2].map((n) => block.numberAt(n)), [1, 2, 3]); // prettier-ignore
});

test("the range of colours leaves NaN and the infinities out", () => {
  assert.deepEqual(blockOf({}, [NaN, -2, Infinity, 5, -Infinity]).range(), [-2, 5]);
  assert.equal(blockOf({}, [NaN]).range(), null);
});

test("an axis that takes a role swaps with the one that had it", () => {
  const first = axes.firstChoice(HEAD, 2);
  assert.deepEqual([0, 1, 2, 3].map((axis) => axes.roleOf(first, axis)), ["slider", "tiles", "rows", "columns"]); // prettier-ignore
  assert.deepEqual(first.index, [2, 0, 0, 0]);
  const swapped = axes.withRole(first, 2, "columns");
  assert.deepEqual([swapped.tiles, swapped.rows, swapped.columns], [1, 3, 2]);
  const batch = axes.withRole(first, 0, "tiles"); // the channels become a slider
  assert.deepEqual([batch.tiles, axes.roleOf(batch, 1)], [0, "slider"]);
  const alone = axes.withRole(first, 1, "slider");
  assert.deepEqual([alone.tiles, axes.roleOf(alone, 1)], [-1, "slider"]);
});

test("the slider of a batch begins with the item that is kept first", () => {
  assert.equal(axes.firstChoice({ ...HEAD, first: 16 }, 18).index[0], 2);
  assert.equal(axes.firstChoice({ ...HEAD, first: 16 }, 3).index[0], 0);
});

test("a tile alone asks for one position, and a part for its rows and columns", () => {
  const alone = axes.openedTile(axes.firstChoice(HEAD, 0), 5);
  const question = axes.sliceQuestion(alone, 100);
  assert.deepEqual([question.tiles, question.index, question.counts], [-1, [0, 5, 0, 0], [-1, -1, -1]]);
  const zoom = { rows: { first: 10, last: 19 }, columns: { first: 4, last: 7 } };
  const part = axes.sliceQuestion({ ...alone, zoom }, 100);
  assert.deepEqual([part.firsts, part.counts], [[0, 10, 4], [-1, 10, 4]]); // prettier-ignore
});

test("a cell of a reduced slice stands for a range of rows and columns, cut at the end", () => {
  const block = blockOf({ shape: [1, 2, 2], counts: [1, 5, 7], block: [3, 4], firsts: [0, 10, 0] }, [1, 2, 3, 4]);
  const choice = { ...axes.firstChoice(HEAD, 0), tiles: -1 };
  assert.deepEqual(axes.indexOfCell(choice, block, { tile: 0, row: 1, column: 1 }), [
    0,
    0,
    { first: 13, last: 14 },
    { first: 4, last: 6 },
  ]);
});

test("looking closer shows a square around the cell that stays inside the tensor", () => {
  const head = { ...HEAD, shape: [4, 8, 1000, 30] };
  const block = blockOf({ shape: [1, 10, 10], counts: [1, 1000, 30], block: [100, 3] }, new Float32Array(100));
  const { zoom } = axes.zoomedTo(axes.firstChoice(head, 0), head, block, { tile: 0, row: 9, column: 0 });
  assert.deepEqual(zoom, { rows: { first: 926, last: 973 }, columns: { first: 0, last: 29 } });
});

test("axes stay for another tensor of the same kind, and begin anew for others", () => {
  const choice = axes.withPosition(axes.withRole(axes.firstChoice(HEAD, 0), 1, "slider"), 1, 7);
  const fewer = { ...HEAD, shape: [4, 3, 6, 5] };
  assert.equal(axes.adaptedChoice(choice, HEAD, fewer, 0).index[1], 2);
  const bias = { ...HEAD, parameter: "bias", shape: [8], axes: ["out"], first: -1, tiles: -1, rows: -1, columns: 0 };
  assert.deepEqual(axes.adaptedChoice(choice, HEAD, bias, 0), axes.firstChoice(bias, 0));
});

test("every point of a gallery belongs to its cell, and gaps to none", () => {
  const layout = layOut([6, 4, 5], 264, 300, 56);
  assert.equal(layout.tileColumns, 4);
  for (let tile = 0; tile < 6; tile++) {
    const x = (tile % 4) * (layout.columns * layout.cellWidth + 4) + 2.5 * layout.cellWidth;
    const y = Math.floor(tile / 4) * (layout.rows * layout.cellHeight + 4) + 3.5 * layout.cellHeight;
    assert.deepEqual(cellUnder(layout, x, y), { tile, row: 3, column: 2 });
  }
  assert.equal(cellUnder(layout, layout.columns * layout.cellWidth + 2, 3), null);
  assert.equal(cellUnder(layout, layout.width - 1, layout.height - 1), null); // there are six tiles, not eight
});

test("a long strip is drawn in lines, and its last line may be short", () => {
  const layout = layOut([1, 1, 100], 264, 300, 56);
  assert.deepEqual([layout.rows, layout.columns, layout.isStrip], [2, 64, true]);
  assert.deepEqual(cellUnder(layout, 3.5 * layout.cellWidth, 1.5 * layout.cellHeight), { tile: 0, row: 0, column: 67 });
  assert.equal(cellUnder(layout, 50 * layout.cellWidth, 1.5 * layout.cellHeight), null);
  assert.deepEqual(nextCell(layout, { tile: 0, row: 0, column: 60 }, "ArrowDown"), { tile: 0, row: 0, column: 99 });
});

test("arrows go over the edge of a tile into the next, and stop at the border", () => {
  const layout = layOut([6, 4, 5], 264, 300, 56);
  const at = (tile: number, row: number, column: number) => ({ tile, row, column });
  assert.deepEqual(nextCell(layout, at(0, 1, 4), "ArrowRight"), at(1, 1, 0));
  assert.deepEqual(nextCell(layout, at(0, 3, 2), "ArrowDown"), at(4, 0, 2));
  assert.deepEqual(nextCell(layout, at(3, 0, 4), "ArrowRight"), at(3, 0, 4));
  assert.deepEqual(nextCell(layout, at(5, 0, 4), "ArrowRight"), at(5, 0, 4)); // there is no seventh tile
  assert.deepEqual(nextCell(layout, at(0, 0, 0), "PageDown"), at(1, 0, 0));
  assert.equal(nextCell(layout, at(0, 0, 0), "x"), null);
});

test("a matrix with few rows or few columns is no line", () => {
  const [flat, tall] = [layOut([1, 2, 700], 264, 300, 56), layOut([1, 700, 2], 264, 300, 56)];
  assert.ok(flat.height >= 32 && flat.width <= 264 && tall.width >= 32 && tall.height <= 300);
});

test("empty and single tensors have a layout", () => {
  assert.deepEqual(cellUnder(layOut([1, 1, 1], 264, 300, 56), 1, 1), { tile: 0, row: 0, column: 0 });
  const empty = layOut([1, 0, 4], 264, 300, 56);
  assert.equal(empty.height, 0);
  assert.equal(cellUnder(empty, 1, 1), null);
});

test("the tensor that was chosen last is shown of the next layer, else the network's variable", () => {
  const weight = { ...HEAD, variable: "Wt", parameter: "a.weight" };
  const grad = { ...HEAD, variable: "Grad", why: "frozen" };
  const tensors = [HEAD, grad, weight];
  assert.equal(pickTensor(tensors, { variable: "Wt", part: "weight" }, "Act"), weight);
  assert.equal(pickTensor(tensors, { variable: "", part: "" }, "Act"), HEAD);
  assert.equal(pickTensor(tensors, { variable: "", part: "" }, "Grad"), HEAD); // what is not there is not chosen
  assert.equal(pickTensor(tensors, { variable: "Grad", part: "" }, "Act"), grad); // unless by hand
  assert.equal(pickTensor([], { variable: "", part: "" }, "Act"), null);
});

const LAYER = { name: "conv", also: ["relu", "conv.weight"], shape: [8], kind: "", view: "auto", place: null, relation: "", other: "", align: ["", ""], space: null, holds: false } as Layer; // prettier-ignore
const logged = (layer: string, variable: string, rows: number) =>
  withRows(
    emptyTable({
      name: `${layer} ${variable}`,
      title: `${layer} · ${variable}`,
      x: "Step",
      legend: "",
      layer,
      columns: [],
    }),
    { first: 0, columns: { Step: Array.from({ length: rows }, (_, n) => n), mean: Array.from({ length: rows }, (_, n) => (n === 500 ? 99 : Math.sin(n))) } },
  ); // prettier-ignore

test("logged statistics of a layer are its own and those of its parts", () => {
  const tables = ["conv", "relu", "other"].map((layer) => logged(layer, "output", 3));
  const named = new Map(tables.map((table) => [table.head.name, table]));
  const found = loggedTables(named, LAYER);
  assert.deepEqual(found.map(({ head }) => head.layer), ["conv", "relu"]); // prettier-ignore
  const all = [...found, logged("conv.weight", "weight_grad", 3), logged("conv", "weight", 3)];
  assert.equal(firstTable(all, LAYER, "Wt", "conv.weight")?.head.name, "conv weight");
  assert.equal(firstTable(all, LAYER, "Act", "")?.head.name, "conv output");
  assert.equal(firstTable([], LAYER, "Act", ""), null);
});

test("a long series keeps its extremes", () => {
  const points = seriesOf(logged("conv", "output", 5000), "mean");
  assert.ok(points.length <= 402 && points.some(({ x, y }) => x === 500 && y === 99));
  assert.ok(points.every(({ x }, n) => !n || x >= points[n - 1].x));
});
