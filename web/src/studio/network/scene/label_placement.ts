// Where labels stand: none covers another or a button, each is nearer to its own slab than to any other, and covers
// other slabs only where nothing else is left. Greedy, in order of weight; among a label's spots the cheapest.

export interface Point {
  x: number;
  y: number;
}

export interface LabelSpot extends Point {
  // The anchor, in pixels, and where the text stands from it: "left" has its left side there, "centre" is below it.
  align: "left" | "right" | "centre" | "above";
}

export interface LabelBox {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The area where labels may be placed. */
export interface LabelArea {
  width: number;
  height: number;
  occupied: LabelBox[]; // boxes of buttons and the legend
  arrows: Point[]; // points along arrows, which labels leave free where they can
  isCrowded: boolean; // so many layers that only labels that cover no other layer are shown
}

export interface LabelToPlace {
  key: string;
  weight: number; // higher weights are placed first
  spots: LabelSpot[]; // candidate positions, best first
  size: { width: number; height: number };
  isSelected: boolean;
  isFrame?: boolean;
  quad?: Point[]; // the labelled plane on the screen, corners in order
}

export interface PlacedLabel {
  box: LabelBox;
  leader: [Point, Point] | null; // a line to the slab, of a label that is away from it
  isRight: boolean; // whether it stands to the right of its slab
}

const [COVERS_OTHER, COVERS_OWN, NEARER_TO_OTHER, COVERS_ARROW] = [60, 60, 45, 14]; // in pixels of distance
const MARGIN = 4; // by which its own slab must be nearer, in pixels
const LEADER_PX = 14;
const [GAP, FRAME_GAP] = [8, 18]; // between labels in a row
const RINGS = [30, 55, 80, 110, 150, 200]; // where no spot is free, in pixels around the slab

/** Place the labels that fit, by key. */
export function placeLabels(labels: LabelToPlace[], area: LabelArea): Map<string, PlacedLabel> {
  const occupied = [...area.occupied];
  const quads = labels.flatMap(({ quad, key, isSelected }) => (quad ? [{ key, quad, isSelected, bounds: boundsOf(quad) }] : [])); // prettier-ignore
  const placed = new Map<string, PlacedLabel>();
  const whole = { left: 0, top: 0, width: area.width, height: area.height };
  for (const label of [...labels].sort((one, other) => other.weight - one.weight)) {
    const others = quads.filter(({ key }) => key !== label.key.split("\0")[0]); // of a tile's name, too
    const cheapest = (spots: LabelSpot[]): LabelBox | null => {
      let [best, bestCost]: [LabelBox | null, number] = [null, Infinity];
      spots.forEach((spot, order) => {
        const box = labelBox(spot, label.size);
        if (order >= bestCost || !isFree(box, occupied, area, label.isFrame ? FRAME_GAP : GAP)) return;
        const own = order + (area.arrows.some((point) => isIn(point, box)) ? COVERS_ARROW : 0);
        const cost = own + costOf(box, label, others, bestCost, area.isCrowded && !label.isSelected);
        if (cost < bestCost) [best, bestCost] = [box, cost];
      });
      return best;
    };
    const isInView = label.quad !== undefined && !area.isCrowded && boxDistance(boundsOf(label.quad), whole) === 0;
    const box = cheapest(label.spots) ?? (isInView ? cheapest(ringSpots(label.quad!)) : null);
    if (!box) continue;
    occupied.push(box);
    const isRight = label.quad !== undefined && box.left > centreOf(label.quad);
    placed.set(label.key, { box, leader: leaderOf(box, label.quad), isRight });
  }
  return placed;
}

type Quad = { quad: Point[]; bounds: LabelBox; isSelected: boolean };

// How bad a free box is, in pixels of distance; infinite where it must not be.
function costOf(box: LabelBox, { quad }: LabelToPlace, others: Quad[], limit: number, mustBeClear: boolean): number {
  let cost = 0;
  for (const other of others) {
    const covered = overlaps(box, other.bounds) ? coveredShare(box, other.quad) : 0;
    if (covered && (mustBeClear || other.isSelected)) return Infinity;
    cost += covered && COVERS_OTHER * (1 + 3 * covered);
    if (cost >= limit) return cost;
  }
  if (!quad) return cost;
  const away = distance(box, quad);
  cost += COVERS_OWN * coveredShare(box, quad) + away / 2;
  const isNearer = (other: Quad): boolean =>
    boxDistance(box, other.bounds) < away + MARGIN && distance(box, other.quad) < away + MARGIN;
  return cost < limit && others.some(isNearer) ? cost + NEARER_TO_OTHER : cost;
}

function ringSpots(quad: Point[]): LabelSpot[] {
  const { left, top, width, height } = boundsOf(quad);
  const around = (radius: number, n: number): LabelSpot => {
    const angle = (n * Math.PI) / 8;
    const x = left + width / 2 + Math.cos(angle) * (radius + width / 2);
    const y = top + height / 2 + Math.sin(angle) * (radius + height / 2);
    return { x, y, align: Math.cos(angle) < 0 ? "right" : "left" };
  };
  return RINGS.flatMap((radius) => Array.from({ length: 16 }, (_, n) => around(radius, n)));
}

function leaderOf(box: LabelBox, quad: Point[] | undefined): [Point, Point] | null {
  if (!quad || distance(box, quad) < LEADER_PX) return null;
  const centre = { x: box.left + box.width / 2, y: box.top + box.height / 2 };
  const end = quad.map((from, n) => nearestOn(from, quad[(n + 1) % quad.length], centre)).reduce((best, point) => (lengthOf(point, centre) < lengthOf(best, centre) ? point : best)); // prettier-ignore
  const clamp = (value: number, low: number, size: number): number => Math.min(low + size, Math.max(low, value));
  return [{ x: clamp(end.x, box.left, box.width), y: clamp(end.y, box.top, box.height) }, end];
}

function labelBox({ x, y, align }: LabelSpot, { width, height }: { width: number; height: number }): LabelBox {
  const left = align === "right" ? x - width : align === "left" ? x : x - width / 2;
  return { left, top: align === "centre" ? y : align === "above" ? y - height : y - height / 2, width, height };
}

function isFree(box: LabelBox, occupied: LabelBox[], { width, height }: LabelArea, gap: number): boolean {
  const { left, top } = box;
  if (left < 2 || top < 2 || left + box.width > width - 2 || top + box.height > height - 2) return false;
  const grown = { left: left - gap, top: top - 1, width: box.width + 2 * gap, height: box.height + 2 };
  return !occupied.some((another) => overlaps(grown, another));
}

function isIn({ x, y }: Point, { left, top, width, height }: LabelBox): boolean {
  return x > left && x < left + width && y > top && y < top + height;
}

function overlaps(first: LabelBox, second: LabelBox): boolean {
  return boxDistance(first, second) === 0;
}

function boxDistance(first: LabelBox, second: LabelBox): number {
  const across = Math.max(first.left - second.left - second.width, second.left - first.left - first.width, 0);
  const down = Math.max(first.top - second.top - second.height, second.top - first.top - first.height, 0);
  return Math.hypot(across, down);
}

function boundsOf(quad: Point[]): LabelBox {
  const [xs, ys] = [quad.map(({ x }) => x), quad.map(({ y }) => y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
}

function centreOf(quad: Point[]): number {
  const { left, width } = boundsOf(quad);
  return left + width / 2;
}

// The share of a box that lies on a quad, from 7 × 3 points of it.
function coveredShare(box: LabelBox, quad: Point[]): number {
  let inside = 0;
  for (let a = 0; a < 7; a++)
    for (let b = 0; b < 3; b++)
      if (isInside({ x: box.left + (a / 6) * box.width, y: box.top + (b / 2) * box.height }, quad)) inside++;
  return inside / 21;
}

function isInside(point: Point, quad: Point[]): boolean {
  let [left, right] = [true, true];
  quad.forEach((start, n) => {
    const end = quad[(n + 1) % quad.length];
    const side = (end.x - start.x) * (point.y - start.y) - (end.y - start.y) * (point.x - start.x);
    [left, right] = [left && side >= 0, right && side <= 0];
  });
  return left || right;
}

function distance(box: LabelBox, quad: Point[]): number {
  const points = [0, 0.5, 1].flatMap((a) =>
    [0, 0.5, 1].map((b) => ({ x: box.left + a * box.width, y: box.top + b * box.height })),
  );
  if (points.some((point) => isInside(point, quad))) return 0;
  const toBox = quad.map(({ x, y }) => boxDistance(box, { left: x, top: y, width: 0, height: 0 }));
  const toSides = quad.flatMap((start, n) => {
    const end = quad[(n + 1) % quad.length];
    return points.map((point) => lengthOf(point, nearestOn(start, end, point)));
  });
  return Math.min(...toBox, ...toSides);
}

function nearestOn(start: Point, end: Point, { x, y }: Point): Point {
  const [across, down] = [end.x - start.x, end.y - start.y];
  const along = ((x - start.x) * across + (y - start.y) * down) / (across * across + down * down || 1);
  const share = Math.min(1, Math.max(0, along));
  return { x: start.x + share * across, y: start.y + share * down };
}

function lengthOf(first: Point, second: Point): number {
  return Math.hypot(first.x - second.x, first.y - second.y);
}
