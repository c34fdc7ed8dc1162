// Leaning stacks: each level is shifted to the right of the one below, so that a wide window is filled and layers do
// not hide each other; in a narrow window levels are further apart. Layers with a given place are not moved.
import type { Net } from "../../messages";
import { extentOf, type PosedLayer } from "./layer_pose";

const MAX_LEAN = 1.06; // maximum lean, relative to the widths of two levels
const [BASE_RISE, RISE_PER_DEPTH] = [2.5, 0.5]; // rise of a level: a base, plus a fraction of the layers' depth
const MAX_STRETCH = 2; // of the rise, in a window that is too narrow for a stack that stands upright
const ROUNDS = 16;

const NO_EXTENT = { wide: 0, tall: 0, deep: 0 };

type Position = [number, number, number];

/** Whether the layers may be moved: no layer has a given place. */
export function canLean(net: Net): boolean {
  return net.layers.every(({ layer }) => layer.place === null && !layer.relation);
}

/** Positions of the layers that give the picture this aspect (width : height), seen from these angles. */
export function leanStack(
  layers: readonly PosedLayer[],
  aspect: number,
  azimuth: number,
  elevation: number,
): Position[] {
  const steps = levelOffsets(layers);
  const places = (lean: number, stretch: number): Position[] =>
    layers.map(({ place: [x, y, z] }) => {
      const { right, up } = steps.get(y)!;
      return [x + lean * right, stretch * up, z];
    });
  const isTooNarrow = (lean: number, stretch: number): boolean =>
    projectedAspect(layers, places(lean, stretch), azimuth, elevation) < aspect;
  const lean = largest(MAX_LEAN, (lean) => isTooNarrow(lean, 1));
  const stretch = 1 + (lean < 0.01 ? largest(MAX_STRETCH - 1, (more) => !isTooNarrow(0, 1 + more)) : 0);
  return places(lean < 0.01 ? 0 : lean, stretch);
}

// The largest number up to a limit at which something still holds, found by halving.
function largest(limit: number, holds: (value: number) => boolean): number {
  let [low, high] = [0, limit];
  for (let round = 0; round < ROUNDS; round++) {
    const middle = (low + high) / 2;
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}

// Offsets of the levels at full lean: each level starts where the one below ends.
function levelOffsets(layers: readonly PosedLayer[]): Map<number, { right: number; up: number }> {
  const levels = new Map<number, ReturnType<typeof extentOf>>();
  for (const placed of layers) {
    const [own, level] = [extentOf(placed), levels.get(placed.place[1]) ?? NO_EXTENT];
    levels.set(placed.place[1], { wide: Math.max(own.wide, level.wide), tall: Math.max(own.tall, level.tall), deep: Math.max(own.deep, level.deep) }); // prettier-ignore
  }
  const steps = new Map<number, { right: number; up: number }>();
  let [right, up, below] = [0, 0, NO_EXTENT];
  for (const [height, level] of [...levels].sort((first, second) => first[0] - second[0])) {
    right += steps.size ? (below.wide + level.wide) / 2 : 0;
    up += steps.size ? BASE_RISE + Math.max(below.tall, (RISE_PER_DEPTH * (below.deep + level.deep)) / 2) : 0;
    steps.set(height, { right, up });
    below = level;
  }
  return steps;
}

// The aspect in orthographic projection.
function projectedAspect(
  layers: readonly PosedLayer[],
  places: Position[],
  azimuth: number,
  elevation: number,
): number {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  layers.forEach((placed, n) => {
    const [x, y, z] = places[n];
    const { wide, tall, deep } = extentOf(placed);
    for (const [a, c] of [
      [-0.5, -0.5],
      [-0.5, 0.5],
      [0.5, -0.5],
      [0.5, 0.5],
    ]) {
      // prettier-ignore
      const [cornerX, cornerZ] = [x + a * wide, z + c * deep];
      const across = cornerX * Math.cos(azimuth) - cornerZ * Math.sin(azimuth);
      const towards = cornerX * Math.sin(azimuth) + cornerZ * Math.cos(azimuth);
      const up = y * Math.cos(elevation) - towards * Math.sin(elevation);
      [left, right] = [Math.min(left, across), Math.max(right, across)];
      [bottom, top] = [Math.min(bottom, up), Math.max(top, up + tall * Math.cos(elevation))];
    }
  });
  return (right - left) / Math.max(1e-6, top - bottom);
}
