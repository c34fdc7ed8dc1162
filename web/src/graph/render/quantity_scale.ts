// The scale of a number that boxes of the graph or slabs of the 3D view are coloured by: its range, colours and text.
import { QUANTITIES, type Quantity } from "../../vocabulary";
import type { Paint } from "./painter";

export type Amount = number | string | null; // NaN and infinity come as the strings "NaN" and "Infinity"; null: unknown

/** What several parts have together: their sum, of some quantities the mean; null if none is known. */
export function joinAmounts(
  quantity: string,
  sum: number,
  counts: { known: number; nans: number; infs: number },
): number | null {
  // prettier-ignore
  if (!counts.known) return null;
  if (counts.nans) return NaN;
  if (counts.infs) return Infinity;
  return QUANTITIES[quantity].is_mean ? sum / counts.known : sum;
}

/** The same, of a list. */
export function totalAmount(quantity: string, amounts: readonly Amount[]): number | null {
  const count = (isMeant: (amount: Amount) => boolean): number => amounts.filter(isMeant).length;
  const sum = amounts.reduce<number>((total, amount) => total + (typeof amount === "number" ? amount : 0), 0);
  return joinAmounts(quantity, sum, {
    known: count((amount) => amount !== null),
    nans: count((amount) => amount === "NaN"),
    infs: count((amount) => amount === "Infinity"),
  });
}

export class QuantityScale {
  range: [number, number] = [0, 1]; // exponents of ten
  hasRange = false; // whether any visible value is a number above zero

  constructor(
    readonly quantity: string,
    private readonly ramp: readonly string[],
    private readonly nonFiniteColour: string,
  ) {}

  /** Fit the range to values, on a logarithmic scale. */
  fitValues(values: Iterable<number | null>): void {
    let [lowest, highest] = [Infinity, 0];
    for (const value of values) {
      if (value === null || !Number.isFinite(value) || value <= 0) continue;
      [lowest, highest] = [Math.min(lowest, value), Math.max(highest, value)];
    }
    this.hasRange = highest > 0;
    if (!this.hasRange) return;
    const { powers } = QUANTITIES[this.quantity];
    if (powers) {
      this.range = powers; // the same for all that are compared, whatever is open
      return;
    }
    const high = Math.log10(highest);
    const low = Math.max(Math.log10(lowest), high - 4);
    this.range = [low, high > low ? high : low + 1];
  }

  paintValue(value: number): Paint {
    if (!Number.isFinite(value)) return { fill: this.nonFiniteColour, ink: inkOn(this.nonFiniteColour) };
    const [low, high] = this.range;
    return rampAt(this.ramp, value > 0 ? (Math.log10(value) - low) / (high - low) : 0);
  }

  /** The values at the ends of the colours, as text. */
  ends(): [string, string] {
    return this.range.map((power) => this.formatValue(10 ** power)) as [string, string];
  }

  formatValue(value: number): string {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : "∞";
    return FORMATS[QUANTITIES[this.quantity].unit](value);
  }
}

const FORMATS: Record<Quantity["unit"], (value: number) => string> = {
  seconds: (value) => (value >= 1e-3 ? `${formatDigits(value * 1e3)} ms` : `${formatDigits(value * 1e6)} µs`),
  bytes: (value) => formatBytes(Math.round(value)),
  count: (value) => formatCount(Math.round(value)),
  "": (value) => String(Number(value.toPrecision(2))),
};

/** A way to colour boxes and slabs. */
export interface ColourChoice {
  quantity: string; // "kind": by none
  title: string;
  reason: string; // why it cannot be chosen; "" if it can
}

/** All ways to colour; `known` are the quantities that something has. */
export function colourChoices(known: readonly string[], timeName: string): ColourChoice[] {
  const choices = Object.values(QUANTITIES).map(({ name, title, missing }) => ({
    quantity: name,
    title: name === "time" ? timeName : title,
    reason: known.includes(name) ? "" : missing,
  }));
  return [{ quantity: "kind", title: "kind", reason: "" }, ...choices];
}

/** What a quantity's numbers are, for legends; `timeName`: what its times are, which may be those of launches. */
export function legendOf(quantity: string, timeName: string): string {
  return quantity === "time" ? timeName : QUANTITIES[quantity].legend;
}

/** The ramp colour at a fraction between 0 and 1, and a readable text colour for it. */
export function rampAt(ramp: readonly string[], fraction: number): Paint {
  const position = Math.max(0, Math.min(1, fraction)) * (ramp.length - 1);
  const low = Math.min(Math.floor(position), ramp.length - 2);
  const fill = mix(ramp[low], ramp[low + 1], position - low);
  return { fill, ink: inkOn(fill) };
}

/** A readable text colour on a fill (as `ink_on` in colours.py). */
function inkOn(fill: string): string {
  const [red, green, blue] = [1, 3, 5].map((n) => {
    const channel = parseInt(fill.slice(n, n + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.211 ? "#ffffff" : "#1c2127";
}

function mix(start: string, end: string, fraction: number): string {
  const channel = (n: number): string => {
    const [a, b] = [start, end].map((colour) => parseInt(colour.slice(n, n + 2), 16));
    return Math.round(a + (b - a) * fraction)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${channel(1)}${channel(3)}${channel(5)}`;
}

function formatDigits(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3, useGrouping: false });
}

function formatBytes(size: number): string {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; size >= 1024 && unit < units.length - 1; unit++) size /= 1024;
  return unit ? `${size.toFixed(1)} ${units[unit]}` : `${size} B`;
}

export function formatCount(value: number): string {
  for (const [size, unit] of [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    // prettier-ignore
    const scaled = value / size;
    if (scaled >= 1) return (scaled < 99.95 ? scaled.toFixed(1) : scaled.toFixed(0)).replace(/\.0$/, "") + unit;
  }
  return String(value);
}
