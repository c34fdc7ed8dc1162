// How an edge is written in SVG: the same strings as in src/torcheer/drawing/looks/svg_shapes.py, tested on the same vectors.
import type { Point } from "../layout/compose";

const ROUND = 5; // the radius of an edge's corners
const HEAD = [6, 3.2] as const; // length and half width of an arrow's head

/** A number with at most one decimal; exactly between two, the even one, as Python has it. */
export function number(value: number): string {
  if (value % 1 === 0) return String(Math.trunc(value) + 0);
  const tie = Number.isInteger(value * 4) && !Number.isInteger(value * 2);
  if (tie) return String((2 * Math.round(value * 5)) / 10);
  return value.toFixed(1).replace(/\.0$/, "");
}

/** An edge with rounded corners. */
export function linePath(points: Point[]): string {
  let path = `M${pair(points[0])}`;
  for (let n = 1; n < points.length - 1; n++) {
    const [before, corner, after] = [points[n - 1], points[n], points[n + 1]];
    const radius = Math.min(ROUND, distance(before, corner) / 2, distance(corner, after) / 2);
    path += `L${pair(towards(corner, before, radius))}Q${pair(corner)} ${pair(towards(corner, after, radius))}`;
  }
  return `${path}L${pair(points[points.length - 1])}`;
}

/** A head at the end of an edge, and the edge cut short under it. */
export function arrowPath(points: Point[]): [string, Point[]] {
  const [before, end] = points.slice(-2);
  const [x, y] = end;
  const [length, wide] = HEAD;
  const [sx, sy] = towards(end, before, length);
  const head =
    before[0] === x
      ? `M${pair(end)}L${number(x - wide)} ${number(sy)}H${number(x + wide)}Z`
      : `M${pair(end)}L${number(sx)} ${number(y - wide)}V${number(y + wide)}Z`;
  return [head, [...points.slice(0, -1), towards(end, before, Math.min(length - 1, distance(before, end)))]];
}

function pair([x, y]: Point): string {
  return `${number(x)} ${number(y)}`;
}

function distance(one: Point, other: Point): number {
  return Math.abs(one[0] - other[0]) + Math.abs(one[1] - other[1]);
}

function towards(start: Point, end: Point, far: number): Point {
  const length = distance(start, end) || 1;
  return [start[0] + ((end[0] - start[0]) * far) / length, start[1] + ((end[1] - start[1]) * far) / length];
}
