// Numbers and other values as short text.
import type { Json } from "../messages";
import { strangeOf, STRANGE_NAMES } from "../non_finite";

/** A value in a few characters: 6 digits for numbers, powers of ten where they are shorter. */
export function plain(value: Json | undefined, digits = 6): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return number(value, digits);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** A number with at most so many digits that say something. */
export function number(value: number, digits = 6): string {
  const strange = strangeOf(value);
  if (strange) return STRANGE_NAMES[strange];
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e9) return String(Number(value.toPrecision(digits)));
  return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
}
