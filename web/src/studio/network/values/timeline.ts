// Which of the recorded moments is looked at. A new moment moves nothing, unless somebody chose to follow it.
import { isBusy } from "../../control/actions";
import type { Moment, State } from "../../messages";

/** Where the slider stands: `live` follows the newest moment, else `moment` is looked at until somebody moves. */
export interface TimelinePosition {
  live: boolean;
  moment: number; // an id; kept when the moment itself was thinned away
  isPlaying: boolean;
}

export const LIVE_POSITION: TimelinePosition = { live: true, moment: -1, isPlaying: false };

/** Where a moment stands in the list; of one that is gone, the last before it; -1 in an empty list. */
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

/** Look at the moment at a position; the ends are where it stops. Nothing here goes live by itself. */
export function moveTo(moments: readonly Moment[], index: number): TimelinePosition {
  if (!moments.length) return LIVE_POSITION;
  const moment = moments[Math.max(0, Math.min(moments.length - 1, Math.round(index)))];
  return { live: false, moment: moment.id, isPlaying: false };
}

/** So many moments on or back. */
export function moveBy(moments: readonly Moment[], position: TimelinePosition, count: number): TimelinePosition {
  return moveTo(moments, indexOfPosition(moments, position) + count);
}

/** Begin to play, from the start where it stands at the end; or stop where it is. */
export function togglePlay(moments: readonly Moment[], position: TimelinePosition): TimelinePosition {
  if (position.isPlaying) return { ...position, isPlaying: false };
  const index = indexOfPosition(moments, position);
  const start = index >= moments.length - 1 ? 0 : index;
  return { ...moveTo(moments, start), isPlaying: moments.length > 1 };
}

/** The next moment of a film; at the end it stays there. */
export function advance(moments: readonly Moment[], position: TimelinePosition): TimelinePosition {
  const next = moveBy(moments, position, 1);
  return { ...next, isPlaying: indexOfPosition(moments, next) < moments.length - 1 };
}

/** "step 120 · Epoch 3 · Trial 12", as the counters say; a counter that is the step is not said twice. */
export function formatMoment(moment: Moment | undefined): string {
  if (!moment) return "no moments yet";
  const otherCounters = Object.entries(moment.counters).filter(([name, value]) => name.toLowerCase() !== "step" || value !== moment.step); // prettier-ignore
  const counters = otherCounters.map(([name, value]) => `${name} ${String(value)}`);
  return [`step ${moment.step}`, ...counters, ...(moment.test ? ["test"] : [])].join(" · ");
}

/** Whether a run that rests has gone on since its newest moment: while nobody looked, or between two that were due. */
export function isBehind(moment: Moment | undefined, state: Pick<State, "status" | "counters">): boolean {
  const { Step: step } = state.counters;
  return !!moment && !moment.test && !isBusy(state) && typeof step === "number" && step > moment.step + 1;
}
