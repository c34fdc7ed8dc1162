// NaN and the infinities: how they come over the wire, what they are called, how they look wherever values are drawn.
import type { Json } from "./messages";

export type Strange = "nan" | "plus" | "minus";

export const STRANGE_NAMES: Record<Strange, string> = { nan: "NaN", plus: "∞", minus: "−∞" };

const SAID: ReadonlyMap<Json, number> = new Map([["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity]]);

/** What a number is that is no finite one; null for those that are. */
export function strangeOf(value: number): Strange | null {
  if (Number.isFinite(value)) return null;
  return Number.isNaN(value) ? "nan" : value > 0 ? "plus" : "minus";
}

/** A cell with its numbers: JSON has names for those that it cannot say. */
export function withNumbers(cell: Json): Json {
  if (Array.isArray(cell)) return cell.map(withNumbers);
  return SAID.get(cell) ?? cell;
}

/** A colour of the page for each: no colour map has these hatched. */
export function strangeColours(): Record<Strange, string> {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string, otherwise: string): string => style.getPropertyValue(name).trim() || otherwise;
  return { nan: read("--nan", "#c2187f"), plus: read("--plus", "#111827"), minus: read("--minus", "#00897b") };
}

/** Fill a small canvas as a cell of this kind looks. */
export function paintStrange(canvas: HTMLCanvasElement, kind: Strange, paper: string): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const { width, height } = canvas;
  context.fillStyle = strangeColours()[kind];
  context.fillRect(0, 0, width, height);
  context.strokeStyle = paper;
  context.lineWidth = Math.max(1, height / 8);
  context.beginPath();
  for (let at = -height; at < width + height; at += height / 2) {
    if (kind !== "minus") [context.moveTo(at, height), context.lineTo(at + height, 0)];
    if (kind !== "plus") [context.moveTo(at, 0), context.lineTo(at + height, height)];
  }
  context.stroke();
}
