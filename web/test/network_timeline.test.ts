// Which moment is looked at, and what may change that.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import type { Moment } from "../src/studio/messages";
import { isBehind, LIVE, moveBy, moveTo, played, positionOf, toggled, told, type Place } from "../src/studio/network/values/timeline";

const moments = (...ids: number[]): Moment[] => ids.map((id) => ({ id, step: id * 10, counters: {}, test: false }));
const at = (moment: number): Place => ({ live: false, moment, playing: false });

test("live is the newest; a moment is where it is", () => {
  equal(positionOf(moments(3, 5, 9), LIVE), 2);
  equal(positionOf(moments(3, 5, 9), at(5)), 1);
  equal(positionOf([], LIVE), -1);
});

test("a moment that was thinned away keeps its position: the last before it", () => {
  equal(positionOf(moments(2, 4, 8, 16), at(7)), 1);
  equal(positionOf(moments(2, 4, 8, 16), at(1)), 0);
  equal(positionOf(moments(2, 4, 8, 16), at(99)), 3);
});

test("new moments move nobody who looks back", () => {
  const place = at(5);
  equal(positionOf(moments(3, 5), place), 1);
  equal(positionOf(moments(3, 5, 9, 10, 11), place), 1);
});

test("steps stop at both ends, and the newest by step is not live", () => {
  deepEqual(moveBy(moments(3, 5, 9), at(5), -10), at(3));
  deepEqual(moveBy(moments(3, 5, 9), at(5), 10), at(9));
  deepEqual(moveBy(moments(3, 5, 9), LIVE, -1), at(5));
  deepEqual(moveTo([], 3), LIVE);
});

test("play goes on from here, from the start where it stands at the end, and stays at the end", () => {
  const list = moments(1, 2, 3);
  deepEqual(toggled(list, at(2)), { ...at(2), playing: true });
  deepEqual(toggled(list, LIVE), { ...at(1), playing: true });
  const second = played(list, { ...at(1), playing: true });
  deepEqual(second, { ...at(2), playing: true });
  deepEqual(played(list, second), at(3));
  deepEqual(toggled(list, second), at(2));
  equal(toggled(moments(1), LIVE).playing, false);
});

test("a moment is told by its step and counters", () => {
  equal(told({ id: 1, step: 12, counters: { Epoch: 3, Name: "p" }, test: true }), "step 12 · Epoch 3 · Name p · test");
  equal(told({ id: 1, step: 12, counters: { Epoch: 3, Step: 12 }, test: false }), "step 12 · Epoch 3");
  equal(told({ id: 1, step: 12, counters: { Step: 2 }, test: false }), "step 12 · Step 2");
  equal(told(undefined), "no moments yet");
});

test("a run that rests is behind where its newest moment is not its last step", () => {
  const [moment] = moments(12); // step 120
  const rests = (step: number, status = "paused") => ({ status, counters: { Step: step } });
  equal(isBehind(moment, rests(300)), true);
  equal(isBehind(moment, rests(121)), false); // it was recorded while step 121 was made
  equal(isBehind(moment, rests(300, "running")), false);
  equal(isBehind({ ...moment, test: true }, rests(300)), false);
  equal(isBehind(moment, { status: "paused", counters: { Trial: 4 } }), false);
  equal(isBehind(undefined, rests(300)), false);
});
