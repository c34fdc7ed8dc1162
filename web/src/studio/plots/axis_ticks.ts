// Axis ticks; the plot and its SVG export use the same ones.
import { formatNumber } from "../tables/value_format";

/** Round numbers in a range, about `count` of them; integers only, with `integersOnly`. */
export function ticks(lowest: number, highest: number, count: number, log: boolean, integersOnly = false): number[] {
  if (!(highest > lowest) || !Number.isFinite(highest - lowest)) return Number.isFinite(lowest) ? [lowest] : [];
  if (log && lowest > 0 && highest / lowest >= 10) return decades(lowest, highest, count);
  const rough = (highest - lowest) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const roundStep = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999)!;
  const step = integersOnly ? Math.max(1, roundStep) : roundStep;
  const values: number[] = [];
  for (let index = Math.ceil(lowest / step - 1e-9); index * step <= highest + step * 1e-9; index++) {
    values.push(Number((index * step).toPrecision(12)));
  }
  return values;
}

function decades(lowest: number, highest: number, count: number): number[] {
  const first = Math.ceil(Math.log10(lowest) - 1e-9);
  const last = Math.floor(Math.log10(highest) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, count)));
  const factors = stride === 1 && (last - first + 1) * 3 <= count ? [1, 2, 5] : [1];
  const values: number[] = [];
  for (let power = first - 1; power <= last; power += stride) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(12));
      if (value >= lowest * (1 - 1e-9) && value <= highest * (1 + 1e-9)) values.push(value);
    }
  }
  return values;
}

/** Format tick values, each with as many digits as needed. */
export function tickTexts(values: number[]): string[] {
  return values.map((value) => formatNumber(value, 10));
}

/** Pad a range around these values; a single value is padded on both sides. */
export function padRange(lowest: number, highest: number, log: boolean): [number, number] {
  if (!Number.isFinite(lowest) || !Number.isFinite(highest)) return log ? [0.1, 10] : [0, 1];
  if (log) {
    const padding = lowest === highest ? 2 : (highest / lowest) ** 0.05;
    return [lowest / padding, highest * padding];
  }
  const padding = lowest === highest ? Math.abs(lowest) * 0.1 || 1 : (highest - lowest) * 0.05;
  return [lowest - padding, highest + padding];
}
