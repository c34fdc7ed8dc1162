// Two side by side: which rows are shown, marked and looked at; which checkpoints are compared.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import { firstSteps, whyNot, type Comparable } from "../src/studio/compare/compare_dialog";
import { filledColumns, lookedAt, sharedRange, shownRows, toneOf } from "../src/studio/compare/difference_rows";
import { emptyTable, withRows, type Table } from "../src/studio/tables/table_rows";

const COLUMNS = ["Layer", "Result", "Max", "Kind"];
const RESULTS = ["equal", "differs first", "by rounding", "only in the first", "equal values, other type"];

function differences(): Table {
  const columns = COLUMNS.map((name) => ({
    name,
    type: name === "Max" ? "float" : "text",
    shape: [],
    plotted: false,
    fixed: null,
    error: "",
    edges: [],
  }));
  const head = { name: "differences", title: "", x: "", legend: "", layer: "", columns };
  const cells = {
    Layer: ["a", "b", "c", "d", "e"],
    Result: RESULTS,
    Max: [0, 2, 1, null, 0],
    Kind: ["", "", "", "", ""],
  };
  return withRows(emptyTable(head), { first: 0, columns: cells });
}

test("columns that are empty throughout are left out", () => {
  deepEqual(
    filledColumns(differences()).head.columns.map(({ name }) => name),
    ["Layer", "Result", "Max"],
  );
});

test("equal rows can be left out, and rows are sorted and filtered", () => {
  deepEqual([...shownRows(differences(), "", null, true)], [1, 2, 3]);
  deepEqual([...shownRows(differences(), "Max>0.5", { column: "Max", down: false }, false)], [2, 1]);
});

test("the first difference is marked apart; what rounding explains is not marked", () => {
  deepEqual(
    RESULTS.map((_, row) => toneOf(differences(), row)),
    ["", "first-difference", "", "different", ""],
  );
});

test("what is looked at is the chosen row, the selection, the first difference, or the first row", () => {
  const table = differences();
  equal(lookedAt(table, "c", { layer: "a", unit: 0 }, "b"), "c");
  equal(lookedAt(table, "gone", { layer: "a", unit: 0 }, "b"), "a");
  equal(lookedAt(table, "", { layer: "elsewhere", unit: 0 }, "b"), "b");
  equal(lookedAt(table, "", null, ""), "a");
});

test("both sides have one range of colours", () => {
  deepEqual(sharedRange([[0, 2], null, [-1, 1]]), [-1, 2]);
  equal(sharedRange([null, undefined]), null);
});

const side = (run: number, steps: number[], pass = false): Comparable => ({
  run,
  name: `run ${run}`,
  pass,
  checkpoints: steps.map((step) => ({ step, best: false, nan: false })),
});

test("of two runs the newest checkpoints are compared, of one the oldest with the newest", () => {
  deepEqual(firstSteps([side(0, [1, 2]), side(1, [5, 9])]), [2, 9]);
  deepEqual(firstSteps([side(0, [1, 2, 3]), side(0, [1, 2, 3])]), [1, 3]);
  deepEqual(firstSteps([side(0, [], true), side(1, [], true)]), [-1, -1]);
});

test("runs that cannot be compared say why", () => {
  equal(whyNot([side(0, [1]), side(1, [2])]), "");
  equal(whyNot([side(0, [], true), side(1, [], true)]), "");
  equal(whyNot([side(0, [1]), side(0, [1])]), "run 0 has one checkpoint only.");
  equal(
    whyNot([side(0, [1]), side(1, [])]),
    "run 1 has no checkpoints: checkpoint_steps in its config says how often one is saved.",
  );
  equal(
    whyNot([side(0, [1]), side(1, [], true)]),
    "One is a recorded pass and the other is not: two of a kind are compared.",
  );
});
