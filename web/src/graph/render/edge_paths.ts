// Edges as SVG paths: the same strings as in src/torcheer/drawing/writers/svg.py, tested on the same vectors.
import type { Point } from "../layout/compose";

const CORNER_RADIUS = 5; // radius of an edge's corners
const ARROW_HEAD = [6, 3.2] as const; // length and half width of an arrow head

/** Format a number with at most one decimal; ties round to even, as in Python. */
export function formatNumber(value: number): string {
  if (value % 1 === 0) return String(Math.trunc(value) + 0);
  const tie = Number.isInteger(value * 4) && !Number.isInteger(value * 2);
  if (tie) return String((2 * Math.round(value * 5)) / 10);
  return value.toFixed(1).replace(/\.0$/, "");
}

/** The path of an edge with rounded corners. */
export function linePath(points: Point[]): string {
  let path = `M${formatPoint(points[0])}`;
  for (let n = 1; n < points.length - 1; n++) {
    const [previous, corner, next] = [points[n - 1], points[n], points[n + 1]];
    const radius = Math.min(CORNER_RADIUS, distance(previous, corner) / 2, distance(corner, next) / 2);
    path += `L${formatPoint(towards(corner, previous, radius))}Q${formatPoint(corner)} ${formatPoint(towards(corner, next, radius))}`;
  }
  return `${path}L${formatPoint(points[points.length - 1])}`;
}

/** The arrow head at the end of an edge, and the edge shortened under it. */
export function arrowPath(points: Point[]): [string, Point[]] {
  const [previous, end] = points.slice(-2);
  const [x, y] = end;
  const [length, halfWidth] = ARROW_HEAD;
  const [sx, sy] = towards(end, previous, length);
  const head =
    previous[0] === x
      ? `M${formatPoint(end)}L${formatNumber(x - halfWidth)} ${formatNumber(sy)}H${formatNumber(x + halfWidth)}Z`
      : `M${formatPoint(end)}L${formatNumber(sx)} ${formatNumber(y - halfWidth)}V${formatNumber(y + halfWidth)}Z`;
  return [head, [...points.slice(0, -1), towards(end, previous, Math.min(length - 1, distance(previous, end)))]];
}

function formatPoint([x, y]: Point): string {
  return `${formatNumber(x)} ${formatNumber(y)}`;
}

function distance(start: Point, end: Point): number {
  return Math.abs(start[0] - end[0]) + Math.abs(start[1] - end[1]);
}

function towards(start: Point, end: Point, offset: number): Point {
  const length = distance(start, end) || 1;
  return [start[0] + ((end[0] - start[0]) * offset) / length, start[1] + ((end[1] - start[1]) * offset) / length];
}
