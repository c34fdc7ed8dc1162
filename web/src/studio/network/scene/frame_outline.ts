// The outline of a frame: sections from the lowest member to the highest, each as wide as its level needs, and no wider
// than it takes for the edges to run without dents. So a frame leans as its stack does, and leaves out what stands beside.
import { Vector3 } from "three";
import { extentOf, type PosedLayer } from "./layer_pose";

/** A horizontal section of a frame. */
export interface FrameSection {
  height: number;
  left: number;
  right: number;
  back: number;
  front: number;
}

type Bound = [height: number, value: number];

/** The sections of a frame around some layers, from below. */
export function frameSections(members: readonly PosedLayer[], margin: number): FrameSection[] {
  const bounds = (axis: 0 | 2, sign: number): Bound[] =>
    members.map((member) => [member.place[1], sign * member.place[axis] + reach(member, axis) + margin]);
  const [right, left, front, back] = ([0, 2] as const).flatMap((axis) =>
    [1, -1].map((sign) => envelope(bounds(axis, sign))),
  );
  const section = (height: number, at = height): FrameSection => ({
    height: at,
    left: -valueAt(left, height),
    right: valueAt(right, height),
    back: -valueAt(back, height),
    front: valueAt(front, height),
  });
  const heights = [...new Set([left, right, back, front].flat().map(([height]) => height))].sort((a, b) => a - b);
  const top = Math.max(...members.map((member) => member.place[1] + extentOf(member).tall));
  const [lowest, highest] = [heights[0], heights[heights.length - 1]];
  return [section(lowest, lowest - margin), ...heights.slice(1, -1).map((height) => section(height)), section(highest, top + margin)]; // prettier-ignore
}

/** A corner of a section, by its bits: 1 is right, 4 is front. */
export function sectionCorner({ height, left, right, back, front }: FrameSection, corner: number): Vector3 {
  return new Vector3(corner & 1 ? right : left, height, corner & 4 ? front : back);
}

/** Pairs of points: the lowest and the highest section, and the four edges between them. */
export function outlineSegments(sections: readonly FrameSection[]): Vector3[] {
  const rings = [sections[0], sections[sections.length - 1]].flatMap(
    (section) =>
    [[0, 1], [1, 5], [5, 4], [4, 0]].map((pair) => pair.map((corner) => sectionCorner(section, corner))), // prettier-ignore
  );
  const edges = [0, 1, 4, 5].flatMap((corner) =>
    sections.slice(1).map((section, below) => [sectionCorner(sections[below], corner), sectionCorner(section, corner)]),
  );
  return [...rings, ...edges].flat();
}

// The least curve without dents that is nowhere below the bounds: their upper convex hull.
function envelope(bounds: Bound[]): Bound[] {
  const most = new Map<number, number>();
  for (const [height, value] of bounds) most.set(height, Math.max(value, most.get(height) ?? -Infinity));
  const hull: Bound[] = [];
  for (const bound of [...most].sort(([one], [other]) => one - other)) {
    while (hull.length > 1 && !turnsDown(hull[hull.length - 2], hull[hull.length - 1], bound)) hull.pop();
    hull.push(bound);
  }
  return hull;
}

function turnsDown([x, y]: Bound, [middle, value]: Bound, [end, last]: Bound): boolean {
  return (middle - x) * (last - y) - (value - y) * (end - x) < -1e-9;
}

function valueAt(curve: readonly Bound[], height: number): number {
  const next = curve.findIndex(([at]) => at >= height);
  const [end, value] = curve[next < 0 ? curve.length - 1 : next];
  if (next <= 0) return value;
  const [start, from] = curve[next - 1];
  return from + ((value - from) * (height - start)) / (end - start);
}

// Half of a layer's width (0) or depth (2).
function reach(member: PosedLayer, axis: 0 | 2): number {
  const { wide, deep } = extentOf(member);
  return (axis ? deep : wide) / 2;
}
