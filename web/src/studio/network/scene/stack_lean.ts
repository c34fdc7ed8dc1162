// Leaning stacks: each level is shifted to the right of the one below, so that a wide window is filled and layers do
// not hide each other. Layers with a given place are not moved.
import type { Net, PlacedLayer } from "../../messages";

const MAX_LEAN = 1.06; // maximum lean, relative to the widths of two levels
const [BASE_RISE, RISE_PER_DEPTH] = [2.5, 0.4]; // rise of a level: a base, plus a fraction of the layers' depth
const ROUNDS = 16;

type Position = [number, number, number];

/** Whether the layers may be moved: no layer has a given place. */
export function canLean(net: Net): boolean {
  return net.layers.every(({ layer }) => layer.place === null && !layer.relation);
}

/** Positions of the layers that give the picture this aspect (width : height), seen from these angles. */
export function leanStack(
  layers: readonly PlacedLayer[],
  aspect: number,
  azimuth: number,
  elevation: number,
): Position[] {
  const steps = levelOffsets(layers);
  const places = (fraction: number): Position[] =>
    layers.map(({ place: [x, y, z] }) => {
      const { right, up } = steps.get(y)!;
      return [x + fraction * right, up, z];
    });
  let [low, high] = [0, MAX_LEAN];
  for (let round = 0; round < ROUNDS; round++) {
    const middle = (low + high) / 2;
    if (projectedAspect(layers, places(middle), azimuth, elevation) < aspect) low = middle;
    else high = middle;
  }
  return places(low < 0.01 ? 0 : low);
}

// Offsets of the levels at full lean: each level starts where the one below ends.
function levelOffsets(layers: readonly PlacedLayer[]): Map<number, { right: number; up: number }> {
  const levels = new Map<number, { wide: number; deep: number }>();
  for (const { place, size } of layers) {
    const { wide, deep } = levels.get(place[1]) ?? { wide: 0, deep: 0 };
    levels.set(place[1], { wide: Math.max(size[0], wide), deep: Math.max(size[1], deep) });
  }
  const steps = new Map<number, { right: number; up: number }>();
  let [right, up, below] = [0, 0, { wide: 0, deep: 0 }];
  for (const [height, level] of [...levels].sort((first, second) => first[0] - second[0])) {
    right += steps.size ? (below.wide + level.wide) / 2 : 0;
    up += steps.size ? BASE_RISE + (RISE_PER_DEPTH * (below.deep + level.deep)) / 2 : 0;
    steps.set(height, { right, up });
    below = level;
  }
  return steps;
}

// The aspect in orthographic projection.
function projectedAspect(
  layers: readonly PlacedLayer[],
  places: Position[],
  azimuth: number,
  elevation: number,
): number {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  layers.forEach(({ size }, n) => {
    const [x, y, z] = places[n];
    for (const [a, c] of [
      [-0.5, -0.5],
      [-0.5, 0.5],
      [0.5, -0.5],
      [0.5, 0.5],
    ]) {
      // prettier-ignore
      const [cornerX, cornerZ] = [x + a * size[0], z + c * size[1]];
      const across = cornerX * Math.cos(azimuth) - cornerZ * Math.sin(azimuth);
      const towards = cornerX * Math.sin(azimuth) + cornerZ * Math.cos(azimuth);
      const up = y * Math.cos(elevation) - towards * Math.sin(elevation);
      [left, right] = [Math.min(left, across), Math.max(right, across)];
      [bottom, top] = [Math.min(bottom, up), Math.max(top, up)];
    }
  });
  return (right - left) / Math.max(1e-6, top - bottom);
}
