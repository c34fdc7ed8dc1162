// The page's state is a reduction of the server's messages.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import type { AlertSeen, State, ToPage } from "../src/studio/messages";
import { NOTHING_SAID, reduce, type PageState } from "../src/studio/page_state";

const state: State = {
  status: "running",
  counters: {},
  can: ["stop"],
  items: 0,
  batch: 4,
  step_n: 10,
  message: "",
  unit: "batch",
  watched: true,
};
const alert: AlertSeen = {
  text: "slow",
  severity: "warning",
  step: 3,
  rule: "",
  layer: "",
  id: "a",
  follows: "",
  began_here: false,
};
const head = { name: "t", title: "T", x: "Step", legend: "", layer: "", columns: [] };
const hello: ToPage = { kind: "hello", version: 2, title: "one", source: "live" };
const moment = (id: number) => ({ id, step: id, counters: {}, test: false });

function said(...messages: ToPage[]): PageState {
  return messages.reduce(reduce, NOTHING_SAID);
}

test("hello makes all that was said before void", () => {
  const page = said(
    hello,
    { kind: "state_came", state },
    { kind: "alerts_came", alerts: [alert] },
    { kind: "caught_up" },
    { ...hello, title: "two" },
  );
  deepEqual(page, { ...NOTHING_SAID, hello: { ...hello, title: "two" } });
});

test("a page that comes late and one that was there from the start know the same", () => {
  const early = said(
    hello,
    { kind: "caught_up" },
    { kind: "moments", came: [moment(0)], gone: [] },
    { kind: "state_came", state },
    { kind: "moments", came: [moment(1), moment(2)], gone: [0] },
    { kind: "alerts_came", alerts: [alert] },
  );
  const late = said(
    hello,
    { kind: "moments", came: [moment(1), moment(2)], gone: [] },
    { kind: "state_came", state },
    { kind: "alerts_came", alerts: [alert] },
    { kind: "caught_up" },
  );
  deepEqual(early, late);
});

test("rows restart, continue and belong to a table that was announced", () => {
  const rows = (first: number, cells: number[]): ToPage => ({ kind: "rows", table: "t", first, columns: { x: cells } });
  equal(said(hello, rows(0, [1])).tables.size, 0);
  const page = said(hello, { kind: "table_came", table: head }, rows(0, [1, 2]), rows(2, [3]));
  deepEqual([page.tables.get("t")?.columns.x, page.tables.get("t")?.count], [[1, 2, 3], 3]);
  deepEqual(reduce(page, rows(0, [9])).tables.get("t")?.columns.x, [9]);
});

test("what is an answer or comes from a later server changes nothing", () => {
  const page = said(hello, { kind: "caught_up" });
  equal(reduce(page, { kind: "answer", question: 1, value: 2 }), page);
  equal(reduce(page, { kind: "smell" } as unknown as ToPage), page);
});

test("the server's farewell says what became of the run", () => {
  const page = said(hello, {
    kind: "ended",
    heading: "The viewer was closed",
    text: "",
    state: { ...state, status: "done" },
  });
  deepEqual([page.ended?.heading, page.state.status], ["The viewer was closed", "done"]);
});
