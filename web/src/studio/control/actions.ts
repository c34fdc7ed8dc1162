// What may be asked of a run, and when.
import type { State } from "../messages";

/** Whether the run is busy: then the only thing to ask of it is to stop. */
export function isBusy({ status }: Pick<State, "status">): boolean {
  return status === "running" || status === "testing";
}

/** Whether a button can be pressed: the host understands it, the run is in the right state, nobody else has control. */
export function isPossible(action: string, state: Pick<State, "status" | "can">, controller: string, connected: boolean): boolean {
  if (!connected || controller === "other" || !state.can.includes(action)) return false;
  return action === "stop" ? isBusy(state) : !isBusy(state);
}

/** A whole number in a range, whatever was typed. */
export function clampInteger(text: string, minimum: number, maximum: number): number {
  const number = Math.round(Number(text));
  return Number.isFinite(number) ? Math.min(maximum, Math.max(minimum, number)) : minimum;
}
