// Picking: which unit lies under a point of the window.
import { Ray, Vector3 } from "three";
import { rayOnPlane, scenePoint } from "./layer_pose";
import { sentCellFraction, cellAt, cellUnder, planeCellUnder, sentCellOf, unitAt } from "./unit_grid";
import type { LayerMesh } from "./layer_mesh";

/** The nearest hit of a ray, and its distance. */
export interface RayHit {
  target: PickResult;
  distance: number;
}

export interface PickResult {
  layer: string;
  cell: number; // in the displayed frame; -1 between cells
  unit: number; // the unit under the pointer, even if the cell stands for several; -1 between cells
  column: number; // in a raster the moment's column; -1 elsewhere
}

/** The nearest hit of a ray, in scene coordinates. */
export function pick(views: Iterable<LayerMesh>, ray: Ray): RayHit | null {
  let nearest: RayHit | null = null;
  for (const layerMesh of views) {
    const local = rayOnPlane(layerMesh.placed, ray);
    const hit =
      layerMesh.form === "bars"
        ? (intersectBars(layerMesh, local) ?? intersectPlane(layerMesh, local))
        : intersectPlane(layerMesh, local);
    if (hit && !(nearest && nearest.distance <= hit.distance))
      nearest = { distance: hit.distance, target: pickResult(layerMesh, hit.cell) };
  }
  return nearest;
}

/** The layer, cell and unit at a cell of the whole plane. */
export function pickResult(view: Pick<LayerMesh, "placed" | "frame" | "layout">, cellIndex: number): PickResult {
  const { layer, grid, units } = view.placed;
  const head = view.frame?.head;
  const nothing = { layer: layer.name, cell: -1, unit: -1, column: -1 };
  if (cellIndex < 0) return nothing;
  const cell = sentCellOf(view.layout, cellIndex);
  if (head?.raster) {
    const { row, column } = cellAt(head.grid, cellIndex);
    return { layer: layer.name, cell, unit: Math.min(units - 1, row * head.block[0]), column: column * head.block[1] };
  }
  const unit = unitAt(grid, view.layout, cellIndex);
  return unit < units ? { layer: layer.name, cell, unit, column: -1 } : nothing;
}

/** The centre of a cell in scene coordinates, on top of its bar. */
export function cellCentre(view: LayerMesh, cell: number): Vector3 {
  const [left, back] = sentCellFraction(view.layout, cell);
  const { size } = view.placed;
  return scenePoint(view.placed, (left - 0.5) * size[0], Math.max(0, view.heightOf(cell)), (back - 0.5) * size[1]);
}

type PlaneHit = { distance: number; cell: number }; // cell: index on the whole plane

function intersectPlane(view: LayerMesh, ray: Ray): PlaneHit | null {
  const { size } = view.placed;
  const distance = -ray.origin.y / ray.direction.y;
  if (!(distance > 0 && Number.isFinite(distance))) return null;
  const spot = ray.at(distance, new Vector3());
  const [left, back] = [spot.x / size[0] + 0.5, spot.z / size[1] + 0.5];
  if (left < 0 || left >= 1 || back < 0 || back >= 1) return null;
  return { distance, cell: planeCellUnder(view.layout, left, back) };
}

function intersectBars(view: LayerMesh, ray: Ray): PlaneHit | null {
  const { size } = view.placed;
  const envelope = intersectBox(ray, [0, 0, 0], [size[0] / 2, view.barHeight, size[1] / 2]);
  if (envelope === null) return null;
  const [wide, deep] = view.cellSize().map((length) => length * 0.42);
  let best: PlaneHit | null = null;
  const count = Math.min(view.placed.units, view.frame?.head.count ?? view.placed.units);
  for (let cell = 0; cell < count; cell++) {
    const half = view.heightOf(cell) / 2;
    const [left, back] = sentCellFraction(view.layout, cell);
    const middle = [(left - 0.5) * size[0], half, (back - 0.5) * size[1]];
    const distance = intersectBox(ray, middle, [wide, Math.max(1e-4, Math.abs(half)), deep]);
    if (distance !== null && (!best || distance < best.distance)) best = { distance, cell: barCell(view, left, back) };
  }
  return best;
}

// The centre of a bar is never in a gap.
function barCell(view: LayerMesh, left: number, back: number): number {
  return cellUnder(view.layout.plane, left, back);
}

// Distance along the ray to a box around a centre; null if the ray misses it.
function intersectBox(ray: Ray, middle: readonly number[], half: readonly number[]): number | null {
  const origin = [ray.origin.x, ray.origin.y, ray.origin.z];
  const direction = [ray.direction.x, ray.direction.y, ray.direction.z];
  let [near, far] = [0, Infinity];
  for (let n = 0; n < 3; n++) {
    const [entry, exit] = [
      (middle[n] - half[n] - origin[n]) / direction[n],
      (middle[n] + half[n] - origin[n]) / direction[n],
    ];
    near = Math.max(near, Math.min(entry, exit));
    far = Math.min(far, Math.max(entry, exit));
  }
  return near <= far ? near : null;
}
