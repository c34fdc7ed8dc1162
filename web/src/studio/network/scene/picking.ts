// What lies under a point of the window.
import { Ray, Vector3 } from "three";
import { blockShare, cellAt, cellUnder, sentFor, unitAt } from "./unit_grid";
import type { LayerView } from "./layer_mesh";

/** What was found on a ray, and how far away. */
export interface Found {
  picked: Picked;
  away: number;
}

export interface Picked {
  layer: string;
  cell: number; // of what is shown; -1 between cells
  unit: number; // the one under the pointer, also where the cell stands for several; -1 between cells
  column: number; // of a raster: the moment's column; -1 elsewhere
}

/** The nearest thing on a ray, in the scene's own coordinates. */
export function pick(views: Iterable<LayerView>, ray: Ray): Found | null {
  let found: Found | null = null;
  for (const view of views) {
    const hit = view.form === "bars" ? (onBars(view, ray) ?? onPlane(view, ray)) : onPlane(view, ray);
    if (hit && !(found && found.away <= hit.away)) found = { away: hit.away, picked: pickedOf(view, hit.place) };
  }
  return found;
}

/** What a cell of the whole plane is. */
export function pickedOf(view: Pick<LayerView, "placed" | "frame" | "layout">, place: number): Picked {
  const { layer, grid, units } = view.placed;
  const head = view.frame?.head;
  const nothing = { layer: layer.name, cell: -1, unit: -1, column: -1 };
  if (place < 0) return nothing;
  const cell = sentFor(view.layout, place);
  if (head?.raster) {
    const { row, column } = cellAt(head.grid, place);
    return { layer: layer.name, cell, unit: Math.min(units - 1, row * head.block[0]), column: column * head.block[1] };
  }
  const unit = unitAt(grid, view.layout, place);
  return unit < units ? { layer: layer.name, cell, unit, column: -1 } : nothing;
}

/** The middle of a cell, in the scene's coordinates, on top of its bar. */
export function middleOf(view: LayerView, cell: number): Vector3 {
  const [left, back] = blockShare(view.layout, cell);
  const { size, place } = view.placed;
  return new Vector3(
    place[0] + (left - 0.5) * size[0], place[1] + Math.max(0, view.heightOf(cell)), place[2] + (back - 0.5) * size[1],
  ); // prettier-ignore
}

type Hit = { away: number; place: number }; // place: the cell of the whole plane

function onPlane(view: LayerView, ray: Ray): Hit | null {
  const { size, place } = view.placed;
  const away = (place[1] - ray.origin.y) / ray.direction.y;
  if (!(away > 0 && Number.isFinite(away))) return null;
  const spot = ray.at(away, new Vector3());
  const [left, back] = [(spot.x - place[0]) / size[0] + 0.5, (spot.z - place[2]) / size[1] + 0.5];
  if (left < 0 || left >= 1 || back < 0 || back >= 1) return null;
  return { away, place: cellUnder(view.layout.whole, left, back) };
}

function onBars(view: LayerView, ray: Ray): Hit | null {
  const { size, place } = view.placed;
  const whole = boxed(ray, place, [size[0] / 2, view.tall, size[1] / 2]);
  if (whole === null) return null;
  const [wide, deep] = view.cellSize().map((length) => length * 0.42);
  let best: Hit | null = null;
  const count = Math.min(view.placed.units, view.frame?.head.count ?? view.placed.units);
  for (let cell = 0; cell < count; cell++) {
    const half = view.heightOf(cell) / 2;
    const [left, back] = blockShare(view.layout, cell);
    const middle = [place[0] + (left - 0.5) * size[0], place[1] + half, place[2] + (back - 0.5) * size[1]];
    const away = boxed(ray, middle, [wide, Math.max(1e-4, Math.abs(half)), deep]);
    if (away !== null && (!best || away < best.away)) best = { away, place: placeUnder(view, left, back) };
  }
  return best;
}

// The middle of a bar is never in a gap.
function placeUnder(view: LayerView, left: number, back: number): number {
  return cellUnder(view.layout.whole, left, back);
}

// How far it is to a box around a middle; null where the ray misses it.
function boxed(ray: Ray, middle: readonly number[], half: readonly number[]): number | null {
  const origin = [ray.origin.x, ray.origin.y, ray.origin.z];
  const way = [ray.direction.x, ray.direction.y, ray.direction.z];
  let [near, far] = [0, Infinity];
  for (let n = 0; n < 3; n++) {
    const [one, other] = [(middle[n] - half[n] - origin[n]) / way[n], (middle[n] + half[n] - origin[n]) / way[n]];
    near = Math.max(near, Math.min(one, other));
    far = Math.min(far, Math.max(one, other));
  }
  return near <= far ? near : null;
}
