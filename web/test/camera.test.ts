// The camera kit of graph and 3D view: easing, flights, gestures.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import { ease, Flight, mixPoses } from "../src/camera/flight";
import { wheelFactor } from "../src/camera/gestures";

test("a flight begins and ends slowly, and stays between its ends", () => {
  deepEqual([ease(-1), ease(0), ease(0.5), ease(1), ease(7)], [0, 0, 0.5, 1, 1]);
  ok(ease(0.1) < 0.1 && ease(0.9) > 0.9);
});

test("a pose between two others has each of its numbers between theirs", () => {
  deepEqual(mixPoses({ x: 0, k: 2 }, { x: 10, k: 4 }, 0.5), { x: 5, k: 3 });
});

// Frames that a test makes itself, and what the user asked for.
function withFrames(reducedMotion: boolean, run: (frame: (ms: number) => void) => void): void {
  let [pending, began]: [((now: number) => void) | null, number] = [null, performance.now()];
  const page = {
    matchMedia: () => ({ matches: reducedMotion }),
    requestAnimationFrame: (step: (now: number) => void) => ((pending = step), 1),
    cancelAnimationFrame: () => (pending = null),
  };
  const before = Object.keys(page).map((name) => [name, (globalThis as Record<string, unknown>)[name]] as const);
  Object.assign(globalThis, page);
  try {
    began = performance.now();
    run((ms) => {
      const step = pending;
      pending = null;
      step?.(began + ms);
    });
  } finally {
    Object.assign(globalThis, Object.fromEntries(before));
  }
}

test("a flight ends exactly where it goes to, and a cancelled one where it is", () => {
  withFrames(false, (frame) => {
    const seen: number[] = [];
    const flight = new Flight<{ x: number }>(({ x }) => seen.push(x));
    flight.start({ x: 0 }, { x: 10 });
    frame(50);
    frame(5000);
    ok(seen[0] > 0 && seen[0] < 10);
    equal(seen[1], 10);
    flight.start({ x: 10 }, { x: 0 });
    flight.cancel();
    frame(100);
    equal(seen.length, 2);
  });
});

test("who asked for less motion is there at once", () => {
  withFrames(true, () => {
    const seen: number[] = [];
    new Flight<{ x: number }>(({ x }) => seen.push(x)).start({ x: 0 }, { x: 10 });
    deepEqual(seen, [10]);
  });
});

test("a wheel that counts lines, and one that jumps, zoom no further than others", () => {
  const wheel = (deltaY: number, deltaMode = 0, ctrlKey = false): number => wheelFactor({ deltaY, deltaMode, ctrlKey });
  ok(wheel(-100) > 1 && wheel(100) < 1);
  equal(wheel(3, 1), wheel(48));
  equal(wheel(1e6), wheel(300));
  ok(wheel(-10, 0, true) > wheel(-10));
});
