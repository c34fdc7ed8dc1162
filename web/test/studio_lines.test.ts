// From tables to lines: groups, smoothing, logarithms, ticks and ranges.
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { test } from "node:test";

import type { Column, TableHead } from "../src/studio/messages";
import { choicesOf, effectiveChoices } from "../src/studio/plots/plot_choices";
import { buildLines, plottable, smooth, type LineChoices } from "../src/studio/plots/plot_lines";
import { padRange, tickTexts, ticks } from "../src/studio/plots/axis_ticks";
import { applyLimits, buildView, FULL_ZOOM, zoomX, type ViewOptions } from "../src/studio/plots/plot_view";
import { emptyTable, withRows, type Table } from "../src/studio/tables/table_rows";

const column = (name: string, more: Partial<Column> = {}): Column => ({
  name,
  type: "float",
  shape: [],
  plotted: true,
  fixed: null,
  error: "",
  edges: [],
  ...more,
});
const head = (columns: Column[], more: Partial<TableHead> = {}): TableHead => ({
  name: "t",
  title: "T",
  x: "Epoch",
  legend: "",
  layer: "",
  columns,
  ...more,
});
const filled = (made: TableHead, columns: Record<string, (number | string | null)[]>): Table =>
  withRows(emptyTable(made), { first: 0, columns });
const choices = (more: Partial<LineChoices & ViewOptions> = {}): LineChoices & ViewOptions => ({
  x: "Epoch",
  legend: "",
  error: null,
  columns: ["loss"],
  smoothing: 0,
  logX: false,
  logY: false,
  separateAxes: false,
  limits: new Map(),
  ...more,
});
const epochs = head([
  column("Epoch", { type: "int" }),
  column("loss", { error: "sem" }),
  column("sem"),
  column("note", { type: "text" }),
]);

test("columns of numbers can be plotted, but not x or text; another column's errors are off at first", () => {
  const table = emptyTable(epochs);
  deepEqual(
    plottable(table).map(({ name }) => name),
    ["loss", "sem"],
  );
  deepEqual(effectiveChoices(table, choicesOf(new Map(), "t")).columns, ["loss"]);
  deepEqual(
    effectiveChoices(table, {
      ...choicesOf(new Map(), "t"),
      switched: new Map([
        ["sem", true],
        ["loss", false],
      ]),
    }).columns,
    ["sem"],
  );
  const counted = emptyTable(head([column("Epoch"), column("Step"), column("loss")]));
  deepEqual(effectiveChoices(counted, choicesOf(new Map(), "t")).columns, ["loss"]);
});

test("what is not finite is no point of a line: it is marked, and said", () => {
  const loss = [3, NaN, Infinity, -Infinity, 1];
  const { lines, remarks } = buildLines(
    filled(epochs, { Epoch: [1, 2, 3, 4, 5], loss, sem: [NaN, 1, 1, 1, 0.5] }),
    choices(),
  );
  deepEqual(lines[0].values, [3, null, null, null, 1]);
  deepEqual(lines[0].nonFinite, [undefined, NaN, Infinity, -Infinity, undefined]);
  deepEqual(lines[0].error, [null, 1, 1, 1, 0.5]);
  deepEqual(remarks, ["loss is NaN or ∞ or −∞ at 3 points, marked at the edge."]);
});

test("a line has its values and its errors, gaps included", () => {
  const { x, lines } = buildLines(
    filled(epochs, { Epoch: [1, 2, 3], loss: [3, null, 1], sem: [0.1, 0.2, 0.3] }),
    choices(),
  );
  deepEqual(x, [1, 2, 3]);
  deepEqual(lines[0].values, [3, null, 1]);
  deepEqual(lines[0].error, [0.1, 0.2, 0.3]);
  equal(lines[0].label, "loss");
});

test("the legend's column makes a line of each value, over one x axis", () => {
  const table = filled(epochs, { Epoch: [1, 2, 1, 3], loss: [1, 2, 3, 4], note: ["a", "a", "b", "b"] });
  const { x, lines } = buildLines(table, choices({ legend: "note" }));
  deepEqual(x, [1, 2, 3]);
  deepEqual(
    lines.map(({ label, values }) => [label, values]),
    [
      ["loss · note a", [1, 2, undefined]],
      ["loss · note b", [3, undefined, 4]],
    ],
  );
});

test("where x falls, rows are counted and it is said", () => {
  const { x, xLabel, remarks } = buildLines(filled(epochs, { Epoch: [1, 2, 1], loss: [1, 2, 3] }), choices());
  deepEqual([x, xLabel], [[0, 1, 2], "row"]);
  match(remarks[0], /Epoch does not only rise/);
});

test("logarithmic axes leave out what is not above zero and say how much", () => {
  const table = filled(epochs, { Epoch: [0, 1, 2], loss: [5, -1, 2] });
  const made = buildLines(table, choices({ logX: true, logY: true }));
  deepEqual(made.x, [1, 2]);
  deepEqual(made.lines[0].values, [null, 2]);
  equal(made.remarks.length, 2);
});

test("smoothing keeps gaps, is unbiased at its start, and keeps what it was made of", () => {
  deepEqual(
    smooth([4, null, 4, undefined, 4], 0.9).map((value) => value && Math.round(value * 1e9) / 1e9),
    [4, null, 4, undefined, 4],
  );
  const smoothed = smooth([0, 1, 1, 1], 0.5) as number[];
  ok(smoothed[1] > 0.6 && smoothed[1] < 0.7 && smoothed[3] > smoothed[2]);
  const { lines } = buildLines(filled(epochs, { Epoch: [1, 2], loss: [0, 1] }), choices({ smoothing: 0.5 }));
  deepEqual(lines[0].raw, [0, 1]);
});

test("a fixed range is the axis, errors are inside an automatic one, and a zoom wins", () => {
  const table = filled(epochs, { Epoch: [1, 2], loss: [1, 2], sem: [1, 1] });
  const made = buildLines(table, choices());
  const [low, high] = buildView(made, epochs.columns, choices(), FULL_ZOOM).scales[0].range;
  ok(low <= 0 && high >= 3);
  const fixed = [column("loss", { fixed: [0, 9] })];
  deepEqual(buildView(made, fixed, choices(), FULL_ZOOM).scales[0].range, [0, 9]);
  const open = [column("loss", { fixed: [0, "Infinity" as unknown as number] })]; // as JSON has it
  deepEqual(buildView(made, open, choices(), FULL_ZOOM).scales[0].range, [0, high]);
  const above = [column("loss", { fixed: [7, Infinity] })]; // which would show nothing
  deepEqual(buildView(made, above, choices(), FULL_ZOOM).scales[0].range, [low, high]);
  const zoomed = buildView(made, fixed, choices(), { x: [1.5, 2], y: { y0: [7, 8] } });
  deepEqual(
    [zoomed.xRange, zoomed.scales[0].range],
    [
      [1.5, 2],
      [7, 8],
    ],
  );
});

test("a zoom along x lets y fit what is seen", () => {
  const made = buildLines(filled(epochs, { Epoch: [1, 2, 3], loss: [100, 1, 2] }), choices());
  const [, high] = buildView(made, epochs.columns, choices(), { x: [2, 3], y: null }).scales[0].range;
  ok(high < 3);
});

test("zooming in and out again comes back to the same range, logarithmic or not", () => {
  for (const logX of [false, true]) {
    const made = buildLines(filled(epochs, { Epoch: [1, 10, 100], loss: [1, 2, 3] }), choices({ logX }));
    const view = buildView(made, epochs.columns, choices({ logX }), { x: [1, 100], y: null });
    const back = zoomX({ ...view, xRange: zoomX(view, 0.5) }, 2);
    ok(Math.abs(back[0] - 1) < 1e-9 && Math.abs(back[1] - 100) < 1e-6);
    for (const factor of [0.5, 2]) {
      let far = view;
      for (let press = 0; press < 3000; press++) far = { ...far, xRange: zoomX(far, factor) };
      ok(
        far.xRange[1] > far.xRange[0] && far.xRange.every(Number.isFinite) && (!logX || far.xRange[0] > 0),
        String(far.xRange),
      );
    }
  }
});

test("ticks are round and inside, on any range", () => {
  deepEqual(ticks(0, 1, 5, false), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  deepEqual(ticks(1, 1000, 4, true), [1, 10, 100, 1000]);
  deepEqual(tickTexts(ticks(0, 0.3, 3, false)), ["0", "0.1", "0.2", "0.3"]);
  for (const [low, high] of [
    [1e-9, 2e-9],
    [-5e12, 3],
    [0.999999, 1.000001],
    [1e-300, 1e300],
  ]) {
    for (const log of [false, true]) {
      const made = ticks(low, high, 6, log);
      ok(
        made.length < 100 && made.every((value) => value >= low - (high - low) * 1e-6 && value <= high * (1 + 1e-6)),
        `${low} ${high} ${log} ${made}`,
      );
    }
  }
  deepEqual(ticks(NaN, NaN, 5, false), []);
  deepEqual(ticks(0, 2, 10, false, true), [0, 1, 2]);
});

test("a range of nothing is still a range", () => {
  for (const log of [false, true]) {
    for (const [low, high] of [
      [NaN, NaN],
      [Infinity, -Infinity],
      [3, 3],
    ]) {
      const [from, to] = padRange(low, high, log);
      ok(to > from);
    }
  }
  deepEqual(padRange(0, 0, false), [-1, 1]);
});

test("ends of axes that were typed hold, one or both, and the others follow", () => {
  const auto: [number, number] = [2, 6];
  deepEqual(applyLimits(auto, undefined, false), [2, 6]);
  deepEqual(applyLimits(auto, [0, null], false), [0, 6]);
  deepEqual(applyLimits(auto, [null, 4], false), [2, 4]);
  deepEqual(applyLimits(auto, [8, null], false), [8, 12]); // beyond everything: as wide as before
  deepEqual(applyLimits(auto, [null, 1], false), [-3, 1]);
  deepEqual(applyLimits(auto, [5, 1], false), [2, 6]); // crossed: as if nothing were typed
  deepEqual(applyLimits(auto, [-1, null], true), [2, 6]); // a logarithmic axis has no place for it
  const lines = buildLines(filled(epochs, { Epoch: [1, 2, 3], loss: [1, 2, 9] }), choices());
  const limits = new Map<string, [number | null, number | null]>([
    ["x", [1, 2]],
    ["y", [0, null]],
    ["y loss", [-1, 1]],
  ]);
  const { xRange, scales } = buildView(lines, epochs.columns, choices({ limits }), FULL_ZOOM);
  deepEqual([xRange, scales[0].range[0]], [[1, 2], 0]);
  ok(scales[0].range[1] < 3); // of what is seen between the limits of x
  deepEqual(
    buildView(lines, epochs.columns, choices({ limits, separateAxes: true }), FULL_ZOOM).scales[0].range,
    [-1, 1],
  );
  deepEqual(buildView(lines, epochs.columns, choices({ limits }), { x: [2, 3], y: null }).xRange, [2, 3]); // a zoom goes first
});

test("the column of the error bars is the chosen one, none, or the one that the table names", () => {
  const table = filled(epochs, { Epoch: [1, 2], loss: [3, 1], sem: [0.1, 0.2] });
  const errors = (error: string | null) => buildLines(table, choices({ error })).lines[0].error;
  deepEqual([errors(null), errors("sem"), errors("loss"), errors("")], [[0.1, 0.2], [0.1, 0.2], [3, 1], null]);
});

test("columns may be called as parts of JavaScript are", () => {
  const names = ["constructor", "__proto__", "toString", "hasOwnProperty"];
  const made = head([column("Epoch"), ...names.map((name) => column(name, { plotted: name !== "__proto__" }))]);
  const cells = JSON.parse(`{"Epoch": [1, 2], ${names.map((name) => `"${name}": [1, 2]`).join(", ")}}`);
  const table = withRows(emptyTable(made), { first: 0, columns: cells });
  const first = choicesOf(new Map(), "constructor");
  deepEqual(effectiveChoices(table, first).columns, ["constructor", "toString", "hasOwnProperty"]);
  const switched = new Map([
    ["__proto__", true],
    ["constructor", false],
  ]);
  const chosen = effectiveChoices(table, { ...first, switched });
  deepEqual(chosen.columns, ["__proto__", "toString", "hasOwnProperty"]);
  deepEqual(
    buildLines(table, chosen).lines.map(({ label, values }) => [label, values]),
    chosen.columns.map((name) => [name, [1, 2]]),
  );
  deepEqual(
    buildLines(table, choices({ columns: ["toString"], error: "constructor", legend: "" })).lines[0].error,
    [1, 2],
  );
});
