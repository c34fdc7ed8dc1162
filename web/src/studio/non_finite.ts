// NaN and the infinities: their JSON encoding, names and colours.
import type { Json } from "./messages";

export type NonFinite = "nan" | "plus" | "minus";

export const NON_FINITE_NAMES: Record<NonFinite, string> = { nan: "NaN", plus: "∞", minus: "−∞" };

const JSON_NUMBERS: ReadonlyMap<Json, number> = new Map([
  ["NaN", NaN],
  ["Infinity", Infinity],
  ["-Infinity", -Infinity],
]);

/** The kind of a non-finite number; null for finite ones. */
export function nonFiniteKind(value: number): NonFinite | null {
  if (Number.isFinite(value)) return null;
  return Number.isNaN(value) ? "nan" : value > 0 ? "plus" : "minus";
}

/** Decode a cell's numbers: JSON encodes NaN and infinities as strings. */
export function parseNumbers(cell: Json): Json {
  if (Array.isArray(cell)) return cell.map(parseNumbers);
  return JSON_NUMBERS.get(cell) ?? cell;
}

/** The page's colour for each kind; they are hatched, as no colour map is. */
export function nonFiniteColours(): Record<NonFinite, string> {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string, fallback: string): string => style.getPropertyValue(name).trim() || fallback;
  return { nan: read("--nan", "#c2187f"), plus: read("--plus", "#111827"), minus: read("--minus", "#00897b") };
}

/** Add a line to the path. */
export function drawLine(context: CanvasRenderingContext2D, x: number, y: number, toX: number, toY: number): void {
  context.moveTo(x, y);
  context.lineTo(toX, toY);
}

/** Fill a small canvas like a cell of this kind. */
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
    if (kind !== "minus") drawLine(context, offset, height, offset + height, 0);
    if (kind !== "plus") drawLine(context, offset, 0, offset + height, height);
  }
  context.stroke();
}
