// Numbers as text: the fewest digits that tell a number from its neighbours in its own type, as numpy and torch print it.
import { NON_FINITE_NAMES, nonFiniteKind } from "../non_finite";
import { FLOATS } from "../../vocabulary";

/** A number of a tensor of this type, exactly. */
export function exactText(value: number | bigint, type: string): string {
  if (typeof value === "bigint") return String(value);
  if (type === "bool") return value ? "True" : "False";
  const kind = nonFiniteKind(value);
  if (kind) return NON_FINITE_NAMES[kind];
  const format = FLOATS[type];
  if (!format || type === "float64" || (Number.isInteger(value) && Math.abs(value) < 1e15))
    return Object.is(value, -0) ? "-0" : String(value);
  for (let digits = 1; digits < 17; digits++) {
    const text = value.toPrecision(digits);
    if (roundTo(Number(text), ...format) === value) return Object.is(value, -0) ? "-0" : String(Number(text));
  }
  return String(value);
}

// The nearest number with so many bits, ties to even.
function roundTo(value: number, bits: number, least: number): number {
  if (!value) return value;
  const step = 2 ** Math.max(exponentOf(Math.abs(value)) - bits + 1, least);
  const [whole, rest] = [Math.floor(value / step), value / step - Math.floor(value / step)];
  const isUp = rest > 0.5 || (rest === 0.5 && whole % 2 !== 0);
  return (whole + (isUp ? 1 : 0)) * step;
}

function exponentOf(size: number): number {
  const guess = Math.floor(Math.log2(size));
  if (2 ** guess > size) return guess - 1;
  return 2 ** (guess + 1) <= size ? guess + 1 : guess;
}
