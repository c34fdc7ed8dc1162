// Positions on the timeline of recorded moments. A new moment moves nothing, unless the user follows live.
import { isBusy } from "../../control/actions";
import type { Moment, State } from "../../messages";

/** The slider's position: `live` follows the newest moment, otherwise `moment` stays until the user moves. */
export interface TimelinePosition {
  live: boolean;
  moment: number; // an id; kept even if that moment was thinned out
  isPlaying: boolean;
}

export const LIVE_POSITION: TimelinePosition = { live: true, moment: -1, isPlaying: false };

/** The index of a position in the list; for a moment that is gone, the last one before it; -1 in an empty list. */
export function indexOfPosition(moments: readonly Moment[], position: TimelinePosition): number {
  if (position.live || !moments.length) return moments.length - 1;
  let [low, high] = [0, moments.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (moments[middle].id <= position.moment) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The position at an index, clamped to the ends. It never goes live by itself. */
export function moveTo(moments: readonly Moment[], index: number): TimelinePosition {
  if (!moments.length) return LIVE_POSITION;
  const moment = moments[Math.max(0, Math.min(moments.length - 1, Math.round(index)))];
  return { live: false, moment: moment.id, isPlaying: false };
}

/** The position some moments forward or back. */
export function moveBy(moments: readonly Moment[], position: TimelinePosition, count: number): TimelinePosition {
  return moveTo(moments, indexOfPosition(moments, position) + count);
}

/** Start playing, from the start if at the end; or pause. */
export function togglePlay(moments: readonly Moment[], position: TimelinePosition): TimelinePosition {
  if (position.isPlaying) return { ...position, isPlaying: false };
  const index = indexOfPosition(moments, position);
  const start = index >= moments.length - 1 ? 0 : index;
  return { ...moveTo(moments, start), isPlaying: moments.length > 1 };
}

/** The next moment when playing; it stops at the end. */
export function advance(moments: readonly Moment[], position: TimelinePosition): TimelinePosition {
  const next = moveBy(moments, position, 1);
  return { ...next, isPlaying: indexOfPosition(moments, next) < moments.length - 1 };
}

/** "step 120 · Epoch 3 · Batch 12", from the counters; a counter equal to the step is not repeated. */
export function formatMoment(moment: Moment | undefined): string {
  if (!moment) return "no moments yet";
  const otherCounters = Object.entries(moment.counters).filter(([name, value]) => name.toLowerCase() !== "step" || value !== moment.step); // prettier-ignore
  const counters = otherCounters.map(([name, value]) => `${name} ${String(value)}`);
  return [`step ${moment.step}`, ...counters, ...(moment.test ? ["test"] : [])].join(" · ");
}

/** Whether an idle run has advanced beyond its newest moment: nobody was subscribed, or between two recordings. */
export function isBehind(moment: Moment | undefined, state: Pick<State, "status" | "counters">): boolean {
  const { Step: step } = state.counters;
  return !!moment && !moment.test && !isBusy(state) && typeof step === "number" && step > moment.step + 1;
}
