// NaN and the infinities: how they come over the wire, what they are called, how they look wherever values are drawn.
import type { Json } from "./messages";

export type NonFinite = "nan" | "plus" | "minus";

export const NON_FINITE_NAMES: Record<NonFinite, string> = { nan: "NaN", plus: "∞", minus: "−∞" };

const JSON_NUMBERS: ReadonlyMap<Json, number> = new Map([["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity]]);

/** What a number is that is no finite one; null for those that are. */
export function nonFiniteKind(value: number): NonFinite | null {
  if (Number.isFinite(value)) return null;
  return Number.isNaN(value) ? "nan" : value > 0 ? "plus" : "minus";
}

/** A cell with its numbers: JSON has names for those that it cannot say. */
export function parseNumbers(cell: Json): Json {
  if (Array.isArray(cell)) return cell.map(parseNumbers);
  return JSON_NUMBERS.get(cell) ?? cell;
}

/** A colour of the page for each: no colour map has these hatched. */
export function nonFiniteColours(): Record<NonFinite, string> {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string, fallback: string): string => style.getPropertyValue(name).trim() || fallback;
  return { nan: read("--nan", "#c2187f"), plus: read("--plus", "#111827"), minus: read("--minus", "#00897b") };
}

/** Fill a small canvas as a cell of this kind looks. */
export function paintNonFinite(canvas: HTMLCanvasElement, kind: NonFinite, paper: string): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const { width, height } = canvas;
  context.fillStyle = nonFiniteColours()[kind];
  context.fillRect(0, 0, width, height);
  context.strokeStyle = paper;
  context.lineWidth = Math.max(1, height / 8);
  context.beginPath();
  for (let offset = -height; offset < width + height; offset += height / 2) {
    if (kind !== "minus") [context.moveTo(offset, height), context.lineTo(offset + height, 0)];
    if (kind !== "plus") [context.moveTo(offset, 0), context.lineTo(offset + height, height)];
  }
  context.stroke();
}
