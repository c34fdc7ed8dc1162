// Where an axis has its numbers; the plot and its SVG use the same ones.
import { number } from "../tables/value_format";

/** Round numbers in a range, about `wanted` of them; whole ones where only those mean something. */
export function ticks(lowest: number, highest: number, wanted: number, log: boolean, whole = false): number[] {
  if (!(highest > lowest) || !Number.isFinite(highest - lowest)) return Number.isFinite(lowest) ? [lowest] : [];
  if (log && lowest > 0 && highest / lowest >= 10) return decades(lowest, highest, wanted);
  const rough = (highest - lowest) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const found = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999)!;
  const step = whole ? Math.max(1, found) : found;
  const made: number[] = [];
  for (let index = Math.ceil(lowest / step - 1e-9); index * step <= highest + step * 1e-9; index++) {
    made.push(Number((index * step).toPrecision(12)));
  }
  return made;
}

function decades(lowest: number, highest: number, wanted: number): number[] {
  const first = Math.ceil(Math.log10(lowest) - 1e-9);
  const last = Math.floor(Math.log10(highest) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, wanted)));
  const between = every === 1 && (last - first + 1) * 3 <= wanted ? [1, 2, 5] : [1];
  const made: number[] = [];
  for (let power = first - 1; power <= last; power += every) {
    for (const factor of between) {
      const value = Number((factor * 10 ** power).toPrecision(12));
      if (value >= lowest * (1 - 1e-9) && value <= highest * (1 + 1e-9)) made.push(value);
    }
  }
  return made;
}

/** The numbers as text, each as long as it must be to differ from its neighbours. */
export function tickTexts(values: number[]): string[] {
  return values.map((value) => number(value, 10));
}

/** A range that holds these values with some air; a single value gets some on both sides. */
export function airy(lowest: number, highest: number, log: boolean): [number, number] {
  if (!Number.isFinite(lowest) || !Number.isFinite(highest)) return log ? [0.1, 10] : [0, 1];
  if (log) {
    const air = lowest === highest ? 2 : (highest / lowest) ** 0.05;
    return [lowest / air, highest * air];
  }
  const air = lowest === highest ? Math.abs(lowest) * 0.1 || 1 : (highest - lowest) * 0.05;
  return [lowest - air, highest + air];
}
