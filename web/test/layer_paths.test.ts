// Which box of a drawing stands for a layer or a module, and the place that an address names.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import { LayerPaths } from "../src/graph/layout/layer_paths";
import type { Part, Payload, Plan } from "../src/graph/payload";
import { placeHash, readPlace, readRun } from "../src/studio/page_place";

const part = (plan = -1): Part => ({ leaf: 0, plan, titles: [-1, -1] });
const plan = (sort: Plan["sort"], names: string[], parts: Part[], first: number[], size: number): Plan =>
  ({ sort, names, parts, first, size, kind: "", times: 1 }) as unknown as Plan;

// input, stem, a stack of two blocks of two items each, head
const data = {
  root: 0,
  plans: [
    plan("root", ["", "stem", "h.0 … h.1", "head"], [part(), part(), part(1), part()], [0, 1, 2, 6], 7),
    plan("stack", ["h.0", "h.1"], [part(2), part(2)], [0, 2], 4),
    plan("module", ["first", ""], [part(), part()], [0, 1], 2),
  ],
} as unknown as Payload;
const paths = new LayerPaths(data, ["Input", "stem", "h.0.first", "", "h.1.first", "h.1", "head"]);

test("a layer has the path of its first item", () => {
  deepEqual(
    ["Input", "stem", "h.0.first", "h.1.first", "head", "none"].map((name) => paths.pathOf(name)),
    ["0", "1", "2/0/0", "2/1/0", "3", ""],
  );
});

test("a layer that is what a module returned has the module's box", () => equal(paths.pathOf("h.1"), "2/1"));

test("a module is found by one of its layers; one that is not drawn gives the layer", () => {
  equal(paths.pathOfModule("h.0", "h.0.first"), "2/0");
  equal(paths.pathOfModule("h", "h.0.first"), "2/0/0");
});

test("an address keeps tab, layer, unit and module, whatever their names contain", () => {
  const selection = { layer: "a&b=<c>#:2", unit: 3, module: "a&b" };
  deepEqual(readPlace(placeHash("graph", selection)), selection);
  deepEqual(readPlace(placeHash("plots", { layer: "x", unit: 0 })), { layer: "x", unit: 0 });
  equal(placeHash("tables", null), "#tables");
  equal(readPlace("#graph"), null);
  equal(readRun(placeHash("graph", { layer: "x", unit: 0 }, 12)), 12);
  for (const hash of ["#graph", "#graph&run=", "#graph&run=-2", "#graph&run=1e3"]) equal(readRun(hash), -1);
  equal(readPlace("#network&unit=7"), null);
});
