// Which moment is shown, and what may change that.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

import type { Moment } from "../src/studio/messages";
import {
  isBehind,
  LIVE_POSITION,
  moveBy,
  moveTo,
  advance,
  indexOfPosition,
  togglePlay,
  formatMoment,
  type TimelinePosition,
} from "../src/studio/network/values/timeline";

const moments = (...ids: number[]): Moment[] => ids.map((id) => ({ id, step: id * 10, counters: {}, test: false }));
const at = (moment: number): TimelinePosition => ({ live: false, moment, isPlaying: false });

test("live is the newest; a moment is where it is", () => {
  equal(indexOfPosition(moments(3, 5, 9), LIVE_POSITION), 2);
  equal(indexOfPosition(moments(3, 5, 9), at(5)), 1);
  equal(indexOfPosition([], LIVE_POSITION), -1);
});

test("a moment that was thinned away keeps its position: the last before it", () => {
  equal(indexOfPosition(moments(2, 4, 8, 16), at(7)), 1);
  equal(indexOfPosition(moments(2, 4, 8, 16), at(1)), 0);
  equal(indexOfPosition(moments(2, 4, 8, 16), at(99)), 3);
});

test("new moments move nobody who looks back", () => {
  const place = at(5);
  equal(indexOfPosition(moments(3, 5), place), 1);
  equal(indexOfPosition(moments(3, 5, 9, 10, 11), place), 1);
});

test("steps stop at both ends, and the newest by step is not live", () => {
  deepEqual(moveBy(moments(3, 5, 9), at(5), -10), at(3));
  deepEqual(moveBy(moments(3, 5, 9), at(5), 10), at(9));
  deepEqual(moveBy(moments(3, 5, 9), LIVE_POSITION, -1), at(5));
  deepEqual(moveTo([], 3), LIVE_POSITION);
});

test("play goes on from here, from the start where it stands at the end, and stays at the end", () => {
  const list = moments(1, 2, 3);
  deepEqual(togglePlay(list, at(2)), { ...at(2), isPlaying: true });
  deepEqual(togglePlay(list, LIVE_POSITION), { ...at(1), isPlaying: true });
  const second = advance(list, { ...at(1), isPlaying: true });
  deepEqual(second, { ...at(2), isPlaying: true });
  deepEqual(advance(list, second), at(3));
  deepEqual(togglePlay(list, second), at(2));
  equal(togglePlay(moments(1), LIVE_POSITION).isPlaying, false);
});

test("a moment is told by its step and counters", () => {
  equal(
    formatMoment({ id: 1, step: 12, counters: { Epoch: 3, Name: "p" }, test: true }),
    "step 12 · Epoch 3 · Name p · test",
  );
  equal(formatMoment({ id: 1, step: 12, counters: { Epoch: 3, Step: 12 }, test: false }), "step 12 · Epoch 3");
  equal(formatMoment({ id: 1, step: 12, counters: { Step: 2 }, test: false }), "step 12 · Step 2");
  equal(formatMoment(undefined), "no moments yet");
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
