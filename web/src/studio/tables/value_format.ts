// Format numbers and other values as short text.
import type { Json } from "../messages";
import { nonFiniteKind, NON_FINITE_NAMES } from "../non_finite";

/** Format a value in a few characters: numbers with 6 digits, scientific notation if shorter. */
export function formatValue(value: Json | undefined, digits = 6): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return formatNumber(value, digits);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** Format a number with at most `digits` significant digits. */
export function formatNumber(value: number, digits = 6): string {
  const kind = nonFiniteKind(value);
  if (kind) return NON_FINITE_NAMES[kind];
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const magnitude = Math.abs(value);
  if (magnitude >= 1e-4 && magnitude < 1e9) return String(Number(value.toPrecision(digits)));
  return value
    .toExponential(digits - 1)
    .replace(/\.?0+e/, "e")
    .replace("e+", "e");
}

/** Format seconds since 1970 as local date and time, the same width for all. */
export function formatTime(seconds: number): string {
  const date = new Date(seconds * 1000);
  const two = (number: number): string => String(number).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
}
