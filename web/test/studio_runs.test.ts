// The list of runs: filter, columns, chosen runs, curves over each other.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import { interpolate } from "../src/studio/plots/line_picking";
import { buildLines } from "../src/studio/plots/plot_lines";
import { chunksOf } from "../src/studio/runs/run_dialogs";
import { axesOf, nearestRun, nextRun } from "../src/studio/runs/run_axes";
import { differencesOf } from "../src/studio/runs/config_differences";
import { splitTags } from "../src/studio/runs/run_details";
import {
  checked,
  checkRun,
  neededColumns,
  orderedRows,
  runLabel,
  tableOf,
  usualColumns,
  visibleColumns,
  type RunColumn,
} from "../src/studio/runs/run_list";
import { overlayOf, usualSeries, type RunCurve } from "../src/studio/runs/run_overlay";

const run = (name: string, varies = true): RunColumn => ({ name, group: "run", type: "text", count: 4, varies });
const config = (name: string, varies = true): RunColumn => ({ name, group: "config", type: "text", count: 4, varies });
const result = (name: string, varies = true): RunColumn => ({ name, group: "result", type: "float", count: 4, varies });
const COLUMNS = [
  run("Name"),
  run("Status", false),
  run("Folder"),
  run("Tags"),
  { ...run("Changed"), type: "time" as const },
  config("train.lr"),
  config("train.optimizer"),
  config("train.seed", false),
  result("Step", false),
  result("grad_norm"),
  result("loss"),
];
const list = tableOf(COLUMNS, {
  ids: [3, 5, 7, 9],
  columns: {
    Name: ["base-1", "base-2", "wide-1", "<img onerror=1>"],
    Folder: ["a", "b", "c", "<img onerror=1>"],
    Tags: ["baseline paper", "baseline2", "", "paper"],
    "train.lr": [0.1, 0.01, 0.001, null],
    "train.optimizer": ["adam", "sgd", "adam", "sgd"],
    loss: [0.5, "NaN", 0.25, 1],
  },
});
const names = (filter: string): Json => Array.from(orderedRows(list, filter, null), (row) => list.ids[row]).join();
type Json = string;

test("a filter compares columns of configs and results by their last word", () => {
  equal(names("lr<0.05"), "5,7");
  equal(names("train.lr>=0.01"), "3,5");
  equal(names("loss<=0.5"), "3,7");
  equal(names("optimizer=adam"), "3,7");
  equal(names("optimizer!=adam"), "5,9");
  equal(names("lr<0.05 optimizer=adam"), "7");
});

test("a filter knows tags as whole words, and patterns of names", () => {
  equal(names("tag:baseline"), "3");
  equal(names("tag:paper"), "3,9");
  equal(names("/^base-\\d$/"), "3,5");
  equal(names("name~^wide"), "7");
  equal(names("/base/ loss<1"), "3");
  equal(names("/base/ paper"), "3");
  equal(names("/base-[/"), ""); // not finished yet: taken as it stands
  equal(names("<img"), "9");
});

test("a filter that names no column is words", () => {
  equal(names("speed<3"), "");
  equal(names("wide"), "7");
  equal(names("lr<fast"), "");
});

test("the usual columns are those in which runs differ, losses first", () => {
  deepEqual(usualColumns(COLUMNS), ["Tags", "loss", "grad_norm", "train.lr", "train.optimizer", "Changed"]);
  deepEqual(
    visibleColumns(COLUMNS, ["loss", "gone"]).map(({ name }) => name),
    ["Name", "loss"],
  );
});

test("columns that a filter or an order mentions are asked for, too", () => {
  const needed = neededColumns(COLUMNS, ["loss"], "seed=1", { column: "grad_norm", down: true });
  deepEqual(needed, ["Name", "Status", "Tags", "Folder", "loss", "train.seed", "grad_norm"]);
});

test("numbers of a config sort as numbers, NaN is one", () => {
  equal(list.table.head.columns.find(({ name }) => name === "train.lr")?.type, "float");
  equal(list.table.head.columns.find(({ name }) => name === "train.optimizer")?.type, "text");
  ok(Number.isNaN(list.table.columns.loss[1]));
  deepEqual([...orderedRows(list, "", { column: "loss", down: false })], [2, 0, 3, 1]);
});

test("with Shift all rows from the last one are checked", () => {
  const sorted = orderedRows(list, "", { column: "loss", down: false });
  checked.set(new Set());
  checkRun(list, sorted, 2, false);
  checkRun(list, sorted, 3, true);
  deepEqual([...checked.get()].sort(), [3, 7, 9]);
  checkRun(list, sorted, 0, false);
  deepEqual([...checked.get()].sort(), [7, 9]);
});

test("runs of one name are told apart by their folders", () => {
  const twice = tableOf(COLUMNS, { ids: [0, 1], columns: { Name: ["best", "best"], Folder: ["a", "b"] } });
  deepEqual([runLabel(twice, 0), runLabel(twice, 1), runLabel(list, 0)], ["best (a)", "best (b)", "base-1"]);
});

const curve = (run: number, series: string, x: number[], y: RunCurve["y"], x_name = "Step"): RunCurve => ({
  run,
  series,
  x_name,
  x,
  y,
  points: x.length,
});

test("curves of runs become lines of the plot, one for each run", () => {
  const curves = [
    curve(1, "loss", [0, 10], [3, 2]),
    curve(2, "loss", [0, 5, 10], [1, "NaN", 0.5]),
    curve(1, "accuracy", [10], [0.9]),
    curve(3, "loss", [1, 2], [1, 1], "Epoch"),
  ];
  const { table, remarks } = overlayOf(curves, ["loss", "accuracy"], (run) => `run ${run}`);
  const lines = buildLines(table, {
    x: "Step",
    legend: "Run",
    error: null,
    columns: ["loss"],
    smoothing: 0,
    logX: false,
    logY: false,
  });
  deepEqual(lines.x, [0, 5, 10]);
  deepEqual(
    lines.lines.map(({ group, values }) => [group, values]),
    [
      ["run 1", [3, undefined, 2]],
      ["run 2", [1, null, 0.5]],
    ],
  );
  deepEqual(remarks, ["Drawn over Step; metrics that count Epoch are left out."]);
});

test("a hundred runs are a hundred lines", () => {
  const curves = Array.from({ length: 100 }, (_, run) => curve(run, "loss", [0, 1], [run, run]));
  const { table } = overlayOf(curves, ["loss"], String);
  const choices = {
    x: "Step",
    legend: "Run",
    error: null,
    columns: ["loss"],
    smoothing: 0.5,
    logX: false,
    logY: false,
  };
  equal(buildLines(table, choices).lines.length, 100);
});

test("the metric drawn first is a loss", () => {
  deepEqual(usualSeries(["speed", "train_loss", "val_loss"]), ["val_loss"]);
  deepEqual(usualSeries(["speed", "Train/Loss"]), ["Train/Loss"]);
  deepEqual(usualSeries(["speed", "size"]), ["speed"]);
  deepEqual(usualSeries([]), []);
});

test("a click between two points of a line meets it", () => {
  equal(interpolate([0, 1, 2, 3], [0, undefined, undefined, 3], 1.5), 1.5);
  equal(interpolate([0, 1, 2], [5, null, undefined], 2), 5);
  equal(interpolate([0, 1], [undefined, undefined], 0.5), null);
  equal(interpolate([0, 1], [4, 8], 1), 8);
});

test("tags are split by spaces and commas, each once", () => {
  deepEqual(splitTags(" a, b  a,,c "), ["a", "b", "c"]);
});

test("what is more than one question may be about is asked in parts", () => {
  deepEqual(chunksOf([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]]);
  deepEqual(chunksOf([], 2), []);
});

test("settings in which runs differ are listed, missing ones too", () => {
  const { table, same } = differencesOf(
    [
      { lr: 0.1, seed: 1, depth: 2 },
      { lr: 0.1, seed: 2 },
    ],
    ["a", "b"],
  );
  deepEqual({ ...table.columns }, { Setting: ["seed", "depth"], a: ["1", "2"], b: ["2", null] });
  equal(same, 1);
});

test("axes are logarithmic over large ranges, and words are in order", () => {
  const axes = axesOf(list, ["train.lr", "train.optimizer", "loss", "Name", "nothing"], [0, 1, 2, 3]);
  deepEqual(
    axes.map(({ name }) => name),
    ["train.lr", "train.optimizer", "loss", "Name"],
  );
  deepEqual(
    axes[0].places.map((place) => place && Math.round(place * 100)),
    [100, 50, 0, null],
  );
  deepEqual(axes[1].places, [0, 1, 0, 1]);
  deepEqual(axes[2].places[1], null); // NaN
});

test("a point between two axes picks the line that passes nearest, within reach", () => {
  const axis = (places: (number | null)[]) => ({ name: "", places, ticks: [] });
  const axes = [axis([0, 1, null]), axis([1, 0, 0.5]), axis([0.2, 0.4, 0.9])];
  equal(nearestRun(axes, 0.1, 0.12, 0.05), 0);
  equal(nearestRun(axes, 0.1, 0.5, 0.05), -1);
  equal(nearestRun(axes, 1, 0.52, 0.05), 2); // its line begins here: it has no value before
  equal(nearestRun(axes, 9, 0.41, 0.05), 1); // beyond the last axis: its end
});

test("arrows go through runs by their place on the last axis", () => {
  const axes = [{ name: "loss", places: [0.5, 0, null, 1], ticks: [] }];
  deepEqual(
    ["ArrowUp", "ArrowDown", "Home", "End", "a"].map((key) => nextRun(axes, 0, key)),
    [3, 1, 1, 3, -1],
  );
  deepEqual([nextRun(axes, -1, "ArrowUp"), nextRun(axes, -1, "ArrowDown"), nextRun(axes, 3, "ArrowUp")], [1, 3, 3]);
});
