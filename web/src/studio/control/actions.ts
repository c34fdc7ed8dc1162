// Which control actions are possible, and when.
import type { State } from "../messages";

/** Whether the run is busy: then the only possible action is to stop. */
export function isBusy({ status }: Pick<State, "status">): boolean {
  return status === "running" || status === "testing";
}

/** Whether an action is possible: the host supports it, the run is in the right state, no other page has control. */
export function isPossible(
  action: string,
  state: Pick<State, "status" | "can">,
  controller: string,
  connected: boolean,
): boolean {
  if (!connected || controller === "other" || !state.can.includes(action)) return false;
  return action === "stop" ? isBusy(state) : !isBusy(state);
}

/** Parse typed text as an integer, clamped to a range. */
export function clampInteger(text: string, minimum: number, maximum: number): number {
  const number = Math.round(Number(text));
  return Number.isFinite(number) ? Math.min(maximum, Math.max(minimum, number)) : minimum;
}

/** "trials", "batches". */
export function pluralOf(unit: string): string {
  return /(ch|sh|s|x)$/.test(unit) ? `${unit}es` : `${unit}s`;
}

/** "Trial". */
export function capitalized(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
