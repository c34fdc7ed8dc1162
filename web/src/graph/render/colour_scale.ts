// Colour by a number instead of by kind, as src/torcheer/drawing/looks/colour_scale.py does.
import type { Placed } from "../layout/placement";
import type { Paint } from "./painter";

const PLAIN = ["input", "output", "parameter", "buffer", "stop"]; // looks that keep their own colours

export class Colouring {
  private sums = [0];
  private known = [0];
  private nans = [0]; // apart: one of them would make all sums behind it so
  private infs = [0];
  range: [number, number] = [0, 1]; // powers of ten

  constructor(
    readonly way: string,
    values: (number | string | null)[], // "NaN" and "Infinity" by their names
    private readonly ramp: string[],
    private readonly strange: string,
  ) {
    const add = (list: number[], more: number): number => list.push(list[list.length - 1] + more);
    for (const value of values) {
      add(this.sums, typeof value === "number" ? value : 0);
      add(this.known, Number(value !== null));
      add(this.nans, Number(value === "NaN"));
      add(this.infs, Number(value === "Infinity"));
    }
  }

  /** What a box stands for: the sum of what is in it, of gradients the mean; null where nothing is known. */
  value(box: Placed): number | null {
    const end = box.first + (box.view.whole?.size ?? 1);
    const count = this.known[end] - this.known[box.first];
    if (!count) return null;
    if (this.nans[end] > this.nans[box.first]) return NaN;
    if (this.infs[end] > this.infs[box.first]) return Infinity;
    const total = this.sums[end] - this.sums[box.first];
    return this.way === "gradient" ? total / count : total;
  }

  /** Spread the colours over the values that are shown, by powers of ten. */
  fit(boxes: Placed[]): void {
    let [least, most] = [Infinity, 0];
    for (const box of boxes) {
      const value = box.view.composed ? null : this.value(box);
      if (value === null || !Number.isFinite(value) || value <= 0) continue;
      [least, most] = [Math.min(least, value), Math.max(most, value)];
    }
    if (!most) return;
    const high = Math.log10(most);
    const low = Math.max(Math.log10(least), high - 4);
    this.range = [low, high > low ? high : low + 1];
  }

  paint(box: Placed, look: string): Paint | null {
    const value = this.value(box);
    if (value === null || PLAIN.includes(look)) return null;
    if (!Number.isFinite(value)) return { fill: this.strange, ink: inkOn(this.strange) };
    const [low, high] = this.range;
    return rampAt(this.ramp, value > 0 ? (Math.log10(value) - low) / (high - low) : 0);
  }

  tell(value: number): string {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : "∞";
    if (this.way === "time") return value >= 1e-3 ? `${digits(value * 1e3)} ms` : `${digits(value * 1e6)} µs`;
    if (this.way === "memory") return bytes(Math.round(value));
    return this.way === "flops" ? count(Math.round(value)) : String(Number(value.toPrecision(2)));
  }
}

/** The colour of a share between 0 and 1, and the ink to write on it. */
export function rampAt(ramp: string[], share: number): Paint {
  const place = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  const fill = mix(ramp[low], ramp[low + 1], place - low);
  return { fill, ink: inkOn(fill) };
}

/** The ink that can be read on a colour (as `ink_on` in colours.py). */
function inkOn(fill: string): string {
  const [red, green, blue] = [1, 3, 5].map((n) => {
    const part = parseInt(fill.slice(n, n + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.211 ? "#ffffff" : "#1c2127";
}

function mix(one: string, other: string, share: number): string {
  const part = (n: number): string => {
    const [a, b] = [one, other].map((colour) => parseInt(colour.slice(n, n + 2), 16));
    return Math.round(a + (b - a) * share)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}

function digits(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3, useGrouping: false });
}

function bytes(size: number): string {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; size >= 1024 && unit < units.length - 1; unit++) size /= 1024;
  return unit ? `${size.toFixed(1)} ${units[unit]}` : `${size} B`;
}

export function count(value: number): string {
  for (const [size, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]] as const) { // prettier-ignore
    const part = value / size;
    if (part >= 1) return (part < 99.95 ? part.toFixed(1) : part.toFixed(0)).replace(/\.0$/, "") + unit;
  }
  return String(value);
}
