// Tables: incoming rows, sorting, filters, CSV, tensors, number formats.
import { deepEqual, equal, notEqual, ok } from "node:assert/strict";
import { test } from "node:test";

import type { TableHead } from "../src/studio/messages";
import { parseNumbers } from "../src/studio/non_finite";
import { formatCsv } from "../src/studio/tables/csv";
import { jointsOf } from "../src/studio/tables/dendrogram";
import { nextSort, orderRows } from "../src/studio/tables/row_order";
import { groupByLayer, layerKey, tableFor } from "../src/studio/tables/table_groups";
import { emptyTable, withRows } from "../src/studio/tables/table_rows";
import { labelSides } from "../src/studio/tables/scatter_plot";
import { formatNumber, formatValue } from "../src/studio/tables/value_format";

const column = (name: string, type = "float") => ({
  name,
  type,
  shape: [],
  plotted: true,
  fixed: null,
  error: "",
  edges: [],
});
const head: TableHead = {
  name: "t",
  title: "T",
  x: "",
  legend: "",
  layer: "",
  columns: [column("a"), column("b", "text")],
};
const table = withRows(emptyTable(head), { first: 0, columns: { a: [3, null, 1, 2], b: ["x10", "x9", "<b>", "x1"] } });

test("rows come after those there are; zero starts anew", () => {
  const longer = withRows(table, { first: 4, columns: { a: [9], b: ["y"] } });
  deepEqual([longer.count, longer.generation], [5, table.generation]);
  const restarted = withRows(longer, { first: 0, columns: { a: [7], b: ["z"] } });
  deepEqual([restarted.count, restarted.columns.a], [1, [7]]);
  notEqual(restarted.generation, longer.generation);
  equal(withRows(longer, { first: 0, columns: {} }).count, 0);
});

test("rows that come twice replace, rows that were lost and columns that come late are gaps", () => {
  const replaced = withRows(withRows(emptyTable(head), { first: 0, columns: { a: [1, 2, 3] } }), {
    first: 2,
    columns: { a: [30, 40] },
  });
  deepEqual(replaced.columns.a, [1, 2, 30, 40]);
  const gap = withRows(replaced, { first: 6, columns: { a: [7], late: [1] } });
  deepEqual(gap.columns.a, [1, 2, 30, 40, null, null, 7]);
  deepEqual(gap.columns.late, [null, null, null, null, null, null, 1]);
});

test("a column may be called like a part of every object", () => {
  const odd = withRows(emptyTable(head), { first: 0, columns: JSON.parse('{"__proto__": [1], "constructor": [2]}') });
  deepEqual([odd.columns["constructor"], odd.count], [[2], 1]);
});

test("NaN and infinities are numbers with names, and are sorted", () => {
  deepEqual(parseNumbers(["NaN", "Infinity", ["-Infinity", 1, null]]), [NaN, Infinity, [-Infinity, 1, null]]);
  const odd = withRows(emptyTable(head), { first: 0, columns: { a: [NaN, 1, Infinity, null, -Infinity, NaN] } });
  deepEqual([...orderRows(odd, "", { column: "a", down: false })], [4, 1, 2, 0, 5, 3]);
  deepEqual([...orderRows(odd, "", { column: "a", down: true })], [2, 1, 4, 0, 5, 3]);
  deepEqual(
    [NaN, Infinity, -Infinity].map((value) => formatNumber(value)),
    ["NaN", "∞", "−∞"],
  );
});

test("sorting goes up, down, and back; missing values stand last", () => {
  deepEqual([...orderRows(table, "", { column: "a", down: false })], [2, 3, 0, 1]);
  deepEqual([...orderRows(table, "", { column: "a", down: true })], [0, 3, 2, 1]);
  deepEqual([...orderRows(table, "", { column: "b", down: false })], [2, 3, 1, 0]); // x1, x9, x10
  const up = nextSort(null, "a");
  deepEqual(
    [up, nextSort(up, "a"), nextSort(nextSort(up, "a"), "a")],
    [{ column: "a", down: false }, { column: "a", down: true }, null],
  );
});

test("a filter finds words in any cell and compares columns", () => {
  deepEqual([...orderRows(table, "X1", null)], [0, 3]);
  deepEqual([...orderRows(table, "a>=2 x", null)], [0, 3]);
  deepEqual([...orderRows(table, "a<2", null)], [2]);
  deepEqual([...orderRows(table, "nowhere", null)], []);
  deepEqual([...orderRows(table, "<b>", null)], [2]);
});

test("a hundred thousand rows are sorted and filtered in one go", () => {
  const values = Array.from({ length: 100_000 }, (_none, index) => (index * 7919) % 100_003);
  const long = withRows(emptyTable(head), { first: 0, columns: { a: values } });
  const order = orderRows(long, "a>50000", { column: "a", down: true });
  ok(order.every((row, index) => !index || values[order[index - 1]] >= values[row]));
});

test("CSV quotes what it must and keeps numbers exact", () => {
  equal(
    formatCsv(
      ["a", 'b"c'],
      [
        [0.1, "x,y"],
        [null, "line\nbreak"],
        [[1, [2]], true],
      ],
    ),
    'a,"b""c"\r\n0.1,"x,y"\r\n,"line\nbreak"\r\n"[1,[2]]",true\r\n',
  );
});

test("numbers are short, and say as much as they can", () => {
  const shown: [number, string][] = [
    [0, "0"],
    [3, "3"],
    [0.1 + 0.2, "0.3"],
    [1e-7, "1e-7"],
    [123456.789, "123457"],
    [-2.5e-10, "-2.5e-10"],
    [1e21, "1e21"],
    [1e12, "1000000000000"],
  ];
  for (const [value, text] of shown) equal(formatNumber(value), text);
  deepEqual(
    [formatValue(null), formatValue("<b>"), formatValue(true), formatValue([1, 2])],
    ["", "<b>", "true", "[1,2]"],
  );
});

test("a tree's joints lie between those they join, and further right than both", () => {
  const joints = jointsOf(
    [2, 0, 1],
    [
      [0, 1, 0.5],
      [2, 3, 2],
    ],
  );
  deepEqual(joints[0], { from: [0, 0], rows: [1, 2], distance: 0.5 });
  deepEqual(joints[1], { from: [0, 0.5], rows: [0, 1.5], distance: 2 });
});

test("labels of points lie on the side that has room, or nowhere", () => {
  deepEqual(
    labelSides(
      [
        [200, 100],
        [220, 100],
        [210, 101],
      ],
      [60, 60, 60],
    ),
    ["left", "right", ""],
  );
  deepEqual(labelSides([[630, 100]], [60]), ["left"]); // not over the edge
});

test("many layers are listed by module, and a layer's variables beside them", () => {
  const named = (name: string, layer = "") => emptyTable({ ...head, name, title: name, layer });
  const layers = ["conv1", "layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1"];
  const all = [
    named("metric"),
    ...layers.flatMap((layer) => [named(`${layer} output`, layer), named(`${layer} grad`, layer)]),
  ];
  const { groups, inLayer } = groupByLayer(all, all[4]);
  deepEqual(
    groups.map(({ label, choices }) => [label, choices.map(({ text }) => text)]),
    [
      ["Tables", ["metric (0)"]],
      ["conv1", ["conv1"]],
      ["layer1", ["layer1.0.conv1", "layer1.1.conv1"]],
      ["layer2", ["layer2.0.conv1"]],
    ],
  );
  deepEqual(
    inLayer.map((table) => table.head.name),
    ["layer1.0.conv1 output", "layer1.0.conv1 grad"],
  );
  equal(tableFor(all, all[4], layerKey("layer2.0.conv1")), "layer2.0.conv1 grad"); // the same variable
  equal(tableFor(all, all[0], layerKey("conv1")), "conv1 output");
  equal(tableFor(all, all[4], "metric"), "metric");
});
