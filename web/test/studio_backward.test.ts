// The steps of a backward pass: parsed line by line, found by op and phase, and formulas cut into terms.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import { BackwardSteps } from "../src/studio/backward/backward_steps";
import { terms } from "../src/studio/backward/formula_view";

const leaf = {
  label: "a",
  kind: "parameter",
  value: { shape: [], type: "float32", numbers: ["NaN"] },
  arrivals: [[1, 0]],
};
const sent = { shape: [], type: "float32", numbers: [2] };
const operation = { label: "neg", kind: "op", value: sent, arrivals: [], reads: [{ op: 0, argument: "x", sent }] };
const order = [
  ["forward", 1],
  ["backward", 1],
  ["leaf", 0],
];
const steps = new BackwardSteps(
  [{ version: 1, loss: "loss", steps: order }, leaf, operation].map((line) => JSON.stringify(line)).join("\n"),
);

test("a step is found by its op, and the same op in the other direction", () => {
  deepEqual([steps.find("forward", 1), steps.findGradient(1), steps.findGradient(0)], [0, 1, 2]);
  deepEqual(
    [0, 1, 2].map((place) => steps.opposite(place)),
    [1, 0, -1],
  );
  deepEqual(steps.phases, [
    { phase: "forward", first: 0, count: 1 },
    { phase: "backward", first: 1, count: 1 },
    { phase: "leaf", first: 2, count: 1 },
  ]);
});

test("what arrives at an op is what a rule sent along its edge, and NaN is a number", () => {
  deepEqual(steps.sent(steps.op(0).arrivals[0])?.numbers, [2]);
  equal(Number.isNaN(steps.op(0).value.numbers![0]), true);
});

test("a formula breaks before an operator, and never before an exponent", () => {
  const [left, gradient, result] = [
    ["x̄", "sent", 0],
    ["ȳ", "arrived", -1],
    ["y", "result", -1],
  ] as const;
  deepEqual(terms([[...left], " = ", [...gradient], " ⊙ (1 − ", [...result], "²)"]), [
    [[...left]],
    [" = ", [...gradient]],
    [" ⊙ (1 − ", [...result], "²)"],
  ]);
  deepEqual(terms([[...left], " = ", [...gradient], "ᵀ ", [...result]]), [
    [[...left]],
    [" = ", [...gradient], "ᵀ"],
    [" ", [...result]],
  ]);
  deepEqual(terms(["W̄_index += ", [...gradient]]), [["W̄_index"], [" += ", [...gradient]]]);
});
