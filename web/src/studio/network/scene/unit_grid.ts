// The grid of units on a layer's plane: from unit to cell to position, and back.
import type { Layer } from "../../messages";
import { pixelFraction, redCellUnder, type RgbPicture } from "./rgb_picture";

export type UnitGrid = [number, number, number, number]; // tile rows, tile columns, rows, columns of a tile

export interface GridCell {
  tile: number;
  row: number; // within the tile
  column: number;
}

/** The gap between tiles, in cells. */
export function gapOf(grid: UnitGrid): number {
  const [tileRows, tileColumns, rows, columns] = grid;
  return tileRows * tileColumns === 1 ? 0 : Math.max(1, 0.08 * Math.min(rows, columns));
}

/** The number of cells across and down, gaps included. */
export function spanOf(grid: UnitGrid): [number, number] {
  const [tileRows, tileColumns, rows, columns] = grid;
  const gap = gapOf(grid);
  return [tileColumns * columns + (tileColumns - 1) * gap, tileRows * rows + (tileRows - 1) * gap];
}

/** The number of cells in a grid. */
export function cellsOf(grid: UnitGrid): number {
  return grid[0] * grid[1] * grid[2] * grid[3];
}

/** The tile, row and column of the cell with this index. */
export function cellAt(grid: UnitGrid, index: number): GridCell {
  const [, , rows, columns] = grid;
  const inside = index % (rows * columns);
  return { tile: Math.floor(index / (rows * columns)), row: Math.floor(inside / columns), column: inside % columns };
}

/** The index of a cell. */
export function indexOf(grid: UnitGrid, cell: GridCell): number {
  return (cell.tile * grid[2] + cell.row) * grid[3] + cell.column;
}

/** The centre of a cell as fractions of the plane, from its left and from its back. */
export function cellFraction(grid: UnitGrid, index: number): [number, number] {
  return sentCellFraction({ plane: grid, sent: grid, block: [1, 1] }, index);
}

/** The cell at a point of the plane; -1 in a gap or outside. */
export function cellUnder(grid: UnitGrid, left: number, back: number): number {
  if (!(left >= 0 && left < 1 && back >= 0 && back < 1)) return -1;
  const gap = gapOf(grid);
  const [across, down] = spanOf(grid);
  const [x, y] = [left * across, back * down];
  const [tileColumn, tileRow] = [Math.floor(x / (grid[3] + gap)), Math.floor(y / (grid[2] + gap))];
  const [column, row] = [Math.floor(x - tileColumn * (grid[3] + gap)), Math.floor(y - tileRow * (grid[2] + gap))];
  if (column >= grid[3] || row >= grid[2] || tileColumn >= grid[1] || tileRow >= grid[0]) return -1;
  return indexOf(grid, { tile: tileRow * grid[1] + tileColumn, row, column });
}

/** How sent cells lie on the whole plane: each covers a block of cells. */
export interface FrameLayout {
  plane: UnitGrid;
  sent: UnitGrid;
  block: [number, number]; // rows, columns
  picture?: RgbPicture | null; // drawn as a picture: the plane has pixels in place of tiles
}

/** The layout of a frame; tiles too many to tell apart come merged into one plane, a raster is a plane of its own. */
export function layoutOf(
  grid: UnitGrid,
  head: { grid: UnitGrid; block: [number, number]; raster: boolean } | null,
): FrameLayout {
  if (!head) return { plane: grid, sent: grid, block: [1, 1] };
  if (head.raster) return { plane: head.grid, sent: head.grid, block: [1, 1] };
  const isMerged = head.grid[0] * head.grid[1] === 1 && grid[0] * grid[1] > 1;
  const plane: UnitGrid = isMerged ? [1, 1, grid[0] * grid[2], grid[1] * grid[3]] : grid;
  return { plane, sent: head.grid, block: head.block };
}

/** The cell of the whole plane at a point of it; -1 in a gap or outside. */
export function planeCellUnder({ plane, picture }: FrameLayout, left: number, back: number): number {
  return picture ? redCellUnder(picture, left, back) : cellUnder(plane, left, back);
}

/** The centre of a sent cell, as fractions of the plane. */
export function sentCellFraction({ plane, sent, block, picture }: FrameLayout, index: number): [number, number] {
  if (picture) return pixelFraction(picture, index);
  const { tile, row, column } = cellAt(sent, index);
  const gap = gapOf(plane);
  const [across, down] = spanOf(plane);
  const [tileRow, tileColumn] = [Math.floor(tile / plane[1]), tile % plane[1]];
  const middle = (place: number, length: number, most: number): number =>
    (place * length + Math.min(most, (place + 1) * length)) / 2;
  const x = tileColumn * (plane[3] + gap) + middle(column, block[1], plane[3]);
  return [x / across, (tileRow * (plane[2] + gap) + middle(row, block[0], plane[2])) / down];
}

/** The sent cell that covers a cell of the whole plane. */
export function sentCellOf({ plane, sent, block }: FrameLayout, index: number): number {
  const { tile, row, column } = cellAt(plane, index);
  return indexOf(sent, { tile, row: Math.floor(row / block[0]), column: Math.floor(column / block[1]) });
}

/** The cell of the whole plane where a unit lies: its index, unless tiles were merged into one plane. */
export function cellOfUnit(grid: UnitGrid, { plane }: FrameLayout, unit: number): number {
  if (plane[0] * plane[1] === grid[0] * grid[1]) return unit;
  const { tile, row, column } = cellAt(grid, unit);
  return (Math.floor(tile / grid[1]) * grid[2] + row) * plane[3] + (tile % grid[1]) * grid[3] + column;
}

/** The unit at a cell of the whole plane; the inverse of `cellOfUnit`. */
export function unitAt(grid: UnitGrid, { plane }: FrameLayout, index: number): number {
  if (plane[0] * plane[1] === grid[0] * grid[1]) return index;
  const { row, column } = cellAt(plane, index);
  const tile = Math.floor(row / grid[2]) * grid[1] + Math.floor(column / grid[3]);
  return indexOf(grid, { tile, row: row % grid[2], column: column % grid[3] });
}

/** A unit's index in the shape of its layer, [c, y, x]. */
export function unravelUnit(shape: number[], unit: number): number[] {
  const index: number[] = [];
  for (let n = shape.length - 1; n >= 0; n--) {
    index.unshift(n ? unit % shape[n] : unit);
    unit = Math.floor(unit / shape[n]);
  }
  return index;
}

/** The name of a tile: "map 3", "head 2", "pool 1, 0"; "" if the layer is one plane. */
export function tileName(layer: Layer, grid: UnitGrid, tile: number): string {
  if (grid[0] * grid[1] === 1) return "";
  if (layer.view === "picture") return ["red", "green", "blue"][tile] ?? "";
  if (layer.view === "pools") return `pool ${Math.floor(tile / grid[1])}, ${tile % grid[1]}`;
  return `${layer.view === "heads" ? "head" : "map"} ${tile}`;
}

/** The unit some columns and rows away, staying on the plane; `unit` itself at the border. */
export function neighbour(grid: UnitGrid, units: number, unit: number, right: number, forward: number): number {
  const { tile, row, column } = cellAt(grid, unit);
  const x = (tile % grid[1]) * grid[3] + column + right;
  const y = Math.floor(tile / grid[1]) * grid[2] + row + forward;
  if (x < 0 || y < 0 || x >= grid[1] * grid[3] || y >= grid[0] * grid[2]) return unit;
  const target = indexOf(grid, {
    tile: Math.floor(y / grid[2]) * grid[1] + Math.floor(x / grid[3]),
    row: y % grid[2],
    column: x % grid[3],
  });
  return target < units ? target : unit;
}
