// Search finds boxes and items by any of their names, and shapes in any spelling.
import { deepEqual, equal } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Details, type Payload } from "../src/graph/payload";
import { globPattern, parseSelector } from "../src/graph/panels/layer_selection";
import { SearchIndex, normalize } from "../src/graph/panels/search_index";

const leaf = (kind: string, ...exits: string[]): any => ({ kind, exits });
const plan = (sort: string, names: string[], parts: [leaf: number, plan: number][], first: number[]): any => ({
  sort,
  names,
  first,
  parts: parts.map(([number, inner]) => ({ leaf: number, plan: inner })),
});
// input, then a body of two blocks in a stack, each with a conv and a relu
const data = {
  root: 0,
  leaves: [leaf("input", "1×3×8"), leaf("Sequential", "1×4×8"), leaf("Block"), leaf("Conv1d"), leaf("relu")],
  plans: [
    plan("root", ["", "body"], [[0, -1], [1, 1]], [0, 1]), // prettier-ignore
    plan("module", ["0 … 1"], [[2, 2]], [0]),
    plan("stack", ["0", "1"], [[2, 3], [2, 3]], [0, 2]), // prettier-ignore
    plan("module", ["conv", ""], [[3, -1], [4, -1]], [0, 1]), // prettier-ignore
  ],
} as unknown as Payload;
const item = (label: string, name: string, shape: string): string =>
  JSON.stringify([label, "", [["function", `torch.${name}`], ["result", `${shape} float32`]]]); // prettier-ignore
const details = new Details(
  [
    "{}",
    item("input_1", "input", "(1, 3, 8)"),
    item("conv1d_1_1", "conv1d", "(1, 4, 8)"),
    item("relu_1_2", "relu", "(1, 4, 8)"),
    item("conv1d_2_3", "conv1d", "(1, 4, 8)"),
    item("relu_2_4", "relu", "(1, 4, 8)"),
  ].join("\n"),
);
const index = new SearchIndex(data, details);
const paths = (query: string): string[] => index.find(query).map((entry) => entry.path);

test("a shape is one thing however it is typed", () => {
  for (const typed of ["1x64x55", "1×64×55", "1, 64, 55", "1,64,55", "1 X 64 X 55"]) equal(normalize(typed), "1×64×55");
  equal(normalize("(1, 64) Float32"), "(1×64) float32");
});

test("boxes and items are found by name, class, function, label and shape", () => {
  deepEqual(paths("body.0.conv"), ["1/0/0/0"]);
  deepEqual(paths("block"), ["1/0/0", "1/0/1"]);
  deepEqual(paths("torch.relu"), ["1/0/0/1", "1/0/1/1"]);
  deepEqual(paths("relu_2_4"), ["1/0/1/1"]);
  deepEqual(paths("3x8"), ["0"]);
});

test("all words must be there, in any order", () => {
  deepEqual(paths("relu body.1"), ["1/0/1/1"]);
  deepEqual(paths("relu body.7"), []);
  deepEqual(paths("   "), []);
});

test("what is named so comes before what only has it somewhere", () => {
  equal(paths("conv")[0], "1/0/0/0");
  equal(paths("body")[0], "1");
});

test("everything is indexed in the end", async () => {
  await index.ready;
  equal(index.entries.length, 5 + 3); // items, and modules but not the stack
});

test("the forms of layers that Python reads select here too", () => {
  deepEqual(paths("conv1d_2"), ["1/0/1/0"]);
  deepEqual(paths("relu_*"), ["1/0/0/1", "1/0/1/1"]);
  deepEqual(paths("body.?"), ["1/0/0", "1/0/1", "1/0/0/1", "1/0/1/1"]); // blocks, then what makes their results
  deepEqual(paths("Block"), ["1/0/0", "1/0/1"]);
  equal(paths("3")[0], "1/0/1/0");
  equal(paths("-1")[0], "1/0/1/1");
  equal(paths("all").length, index.entries.length);
  deepEqual(paths("Conv9*"), []);
});

test("a pass is found in a drawing that shows every pass", () => {
  const selects = parseSelector("relu_1:2", 9)!;
  equal(selects({ kind: "relu", address: "", label: "relu_1_2:2" }), true);
  equal(selects({ kind: "relu", address: "", label: "relu_1_2:1" }), false);
});

test("patterns match as in Python", () => {
  const cases = JSON.parse(readFileSync("../tests/data/patterns.json", "utf8")) as [string, string, boolean][];
  for (const [pattern, name, expected] of cases) equal(globPattern(pattern).test(name), expected, `${pattern} ${name}`);
});
