// What is wrong with a layer in words, and the numbers that boxes are coloured by.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import { byCause } from "../src/studio/faults/alert_order";
import { faultsOf, faultText, joinFaults, originOf, passOrder } from "../src/studio/faults/layer_faults";
import { colourChoices, legendOf } from "../src/graph/render/quantity_scale";
import { QUANTITIES } from "../src/vocabulary";
import { logOverlays } from "../src/studio/graph/layer_overlays";
import type { AlertSeen, Net } from "../src/studio/messages";
import type { Table } from "../src/studio/tables/table_rows";

const alert = (layer: string, rule: string, step = 1, severity = "warning"): AlertSeen => ({
  text: "",
  severity,
  step,
  rule,
  layer,
  id: "",
  follows: "",
  began_here: false,
});

const table = (layer: string, variable: string, norms: number[], nans = 0): [string, Table] => {
  const columns = {
    Step: norms.map((_, step) => step),
    norm: norms,
    nans: norms.map(() => nans),
    infs: norms.map(() => 0),
  };
  const head = { name: `${layer} ${variable}`, layer, columns: [] };
  return [head.name, { head, columns, count: norms.length } as unknown as Table];
};

test("known rules are a word, others are counted, later ones do not count", () => {
  const alerts = [alert("a", "dead_relu"), alert("a", "dead_relu", 2), alert("a", "stuck"), alert("b", "saturation", 9), alert("b", "exploding_gradient"), alert("b", "vanishing_gradient"), alert("c", "stuck", 1, "info")]; // prettier-ignore
  const faults = faultsOf(alerts, 5);
  equal(faultText(faults.get("a")!), "dead · 1 alert");
  equal(faultText(faults.get("b")!), "exploding · vanishing");
  equal(faults.has("c"), false);
  equal(faultText(joinFaults(faults, ["a", "b", "none"])), "dead · exploding · vanishing · 1 alert");
});

const net = {
  layers: [{ layer: { name: "a", also: ["a.weight"] } }, { layer: { name: "b", also: [] } }],
} as unknown as Net;

test("gradient, update, NaN and alerts come from the log, each once for a layer, up to the step", () => {
  const tables = new Map([
    table("a", "grad", [1, 2, 3]),
    table("a.weight", "update", [0.5]),
    table("b", "output", [1], 2),
  ]);
  const facts = { net, tables, alerts: [alert("b", "nan_inf")], step: 1 };
  deepEqual(logOverlays(["", "a", "a", "b"], facts), {
    gradient_norm: [null, 2, null, null],
    update: [null, 0.5, null, null],
    nan: [null, 0, null, "NaN"],
    alert: [null, 0, null, 1],
  });
});

test("of two side by side a layer has the largest difference of its values and parameters", () => {
  const columns = {
    Layer: ["a", "a.weight", "b", "elsewhere"], Relative: [0.001, 0.25, null, 1], "NaN or ∞": [0, 0, 2, 0],
  }; // prettier-ignore
  const tables = new Map([["differences", { head: { name: "differences" }, columns, count: 4 } as unknown as Table]]);
  deepEqual(logOverlays(["", "a", "b"], { net, tables, alerts: [], step: Infinity }), {
    difference: [null, 0.25, "NaN"],
  });
});

test("what has no numbers says why it cannot be chosen", () => {
  const overlays = logOverlays(["a"], { net, tables: new Map(), alerts: [], step: Infinity });
  const choices = colourChoices(Object.keys(overlays), "time");
  equal(choices.length, 1 + Object.keys(QUANTITIES).length);
  deepEqual(
    choices.filter(({ reason }) => !reason).map(({ quantity }) => quantity),
    ["kind"],
  );
});

test("times that are only of launches are offered as such", () => {
  const titleOf = (timeName: string): string | undefined =>
    colourChoices(["time"], timeName).find(({ quantity }) => quantity === "time")?.title;
  equal(titleOf("time"), "time");
  equal(titleOf("launch time"), "launch time");
  equal(legendOf("time", "launch time"), "launch time");
});

test("what a log says of gradients takes neither the place nor the legend of what a pass says of them", () => {
  const ofPass: Record<string, unknown> = { gradient: [0.25, 0.5] };
  const tables = new Map([table("a", "grad", [30])]);
  Object.assign(ofPass, logOverlays(["a", "b"], { net, tables, alerts: [], step: Infinity }));
  deepEqual([ofPass.gradient, ofPass.gradient_norm], [[0.25, 0.5], [30, null]]); // prettier-ignore
  equal(legendOf("gradient", "time"), "mean |gradient|");
  equal(legendOf("gradient_norm", "time"), "norm of the gradient");
});

test("alerts are listed oldest first, those that follow from another under it", () => {
  const follows = (cause: string, ...rest: Parameters<typeof alert>) => ({ ...alert(...rest), follows: cause });
  const alerts = [alert("a", "dead_relu", 20), follows("dead_relu at step 20", "b", "all_zero", 90), alert("c", "loss_spike", 50), follows("gone at step 1", "d", "unchanged", 5), follows("dead_relu at step 20", "e", "unchanged", 30)]; // prettier-ignore
  deepEqual(byCause(alerts).map(({ layer }) => layer), ["d", "a", "e", "b", "c"]); // prettier-ignore
});

test("NaN began where it was seen first in time, not in the order in which the layers run", () => {
  const bad = ["stem", "blocks.5", "head"].map((name) => ({ name, names: [name, `${name}.weight`] }));
  const late = [alert("stem", "nan_inf", 462), { ...alert("blocks.5.weight", "nan_inf", 150), began_here: true }];
  deepEqual(originOf(bad, late, 500, ""), { name: "blocks.5", word: "first" });
  deepEqual(originOf(bad, late.slice(0, 1), 500, ""), { name: "stem", word: "first seen" });
  equal(originOf(bad, late, 100, ""), null, "of a training, the order of execution says nothing");
});

test("NaN in a single pass began at its first layer, and in its gradients at the last", () => {
  const bad = ["stem", "head"].map((name) => ({ name, names: [name] }));
  deepEqual(originOf(bad, [], 0, passOrder("pass", "Act")), { name: "stem", word: "first" });
  deepEqual(originOf(bad, [], 0, passOrder("pass", "Grad")), { name: "head", word: "first" });
  equal(passOrder("live", "Act"), "");
});
