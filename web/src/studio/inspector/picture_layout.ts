// Where the cells of a slice lie in its picture: tiles in a grid, a long strip in lines.
import type { BlockCell } from "./slice_block";

const GAP_PX = 4; // between tiles
const STRIP_CELLS = 64; // of a line, where a strip is longer
const [LARGEST_CELL_PX, LARGEST_TILE_PX] = [26, 160];

/** Sizes in CSS pixels. */
export interface PictureLayout {
  tiles: number;
  tileColumns: number;
  rows: number; // of cells in a tile
  columns: number;
  cells: number; // of a tile; the last line of a strip may be short
  cellPx: number; // may be below 1
  width: number;
  height: number;
  isStrip: boolean;
}

/** Lay out a block of this shape in a place of this width; `tilePx` is how wide a tile should be. */
export function layOut(shape: readonly number[], widthPx: number, heightPx: number, tilePx: number): PictureLayout {
  const [tiles, blockRows, blockColumns] = shape;
  const isStrip = tiles === 1 && blockRows === 1 && blockColumns > STRIP_CELLS;
  const [rows, columns] = isStrip ? [Math.ceil(blockColumns / STRIP_CELLS), STRIP_CELLS] : [blockRows, blockColumns];
  const fitting = Math.max(1, Math.floor((widthPx + GAP_PX) / (tilePx + GAP_PX)));
  const tileColumns = tiles > 1 ? Math.min(tiles, fitting) : 1;
  const room = (widthPx - (tileColumns - 1) * GAP_PX) / tileColumns;
  const limit = tiles > 1 ? Math.min(room, LARGEST_TILE_PX) : room;
  const fit = Math.min(limit / columns, (tiles > 1 ? LARGEST_TILE_PX : heightPx) / rows, LARGEST_CELL_PX);
  const cellPx = fit >= 1 && tiles === 1 ? Math.floor(fit) : fit;
  const tileRows = Math.ceil(tiles / tileColumns);
  return {
    tiles,
    tileColumns,
    rows,
    columns,
    cells: blockRows * blockColumns,
    cellPx,
    width: tileColumns * columns * cellPx + (tileColumns - 1) * GAP_PX,
    height: tileRows * rows * cellPx + (tileRows - 1) * GAP_PX,
    isStrip,
  };
}

/** The left and upper corner of a tile. */
export function cornerOf({ tileColumns, rows, columns, cellPx }: PictureLayout, tile: number): [number, number] {
  return [
    (tile % tileColumns) * (columns * cellPx + GAP_PX),
    Math.floor(tile / tileColumns) * (rows * cellPx + GAP_PX),
  ];
}

/** A cell's place on its tile. */
export function placeOf({ isStrip, columns }: PictureLayout, { row, column }: BlockCell): [number, number] {
  return isStrip ? [Math.floor(column / columns), column % columns] : [row, column];
}

/** The cell under a point; null between tiles and beyond the end. */
export function cellUnder(layout: PictureLayout, x: number, y: number): BlockCell | null {
  const { tiles, tileColumns, rows, columns, cellPx, isStrip, cells } = layout;
  const [tileWidth, tileHeight] = [columns * cellPx + GAP_PX, rows * cellPx + GAP_PX];
  const [tileColumn, tileRow] = [Math.floor(x / tileWidth), Math.floor(y / tileHeight)];
  const [column, row] = [
    Math.floor((x - tileColumn * tileWidth) / cellPx),
    Math.floor((y - tileRow * tileHeight) / cellPx),
  ];
  const tile = tileRow * tileColumns + tileColumn;
  if (x < 0 || y < 0 || tileColumn >= tileColumns || tile >= tiles || column >= columns || row >= rows) return null;
  if (!isStrip) return { tile, row, column };
  return row * columns + column < cells ? { tile, row: 0, column: row * columns + column } : null;
}

/** The cell that an arrow, Home, End or page key leads to; null for other keys. */
export function nextCell(layout: PictureLayout, cell: BlockCell, key: string): BlockCell | null {
  const { tiles, tileColumns, rows, columns, cells, isStrip } = layout;
  const [row, column] = placeOf(layout, cell);
  const steps: Record<string, [number, number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    Home: [0, -column],
    End: [0, columns - 1 - column],
  };
  const tileStep = { PageDown: 1, PageUp: -1 }[key];
  if (tileStep) return { ...cell, tile: Math.max(0, Math.min(tiles - 1, cell.tile + tileStep)) };
  if (!steps[key]) return null;
  let [toRow, toColumn, tile] = [row + steps[key][0], column + steps[key][1], cell.tile];
  // Over the edge of a tile lies the next one.
  if (toColumn < 0 && tile % tileColumns > 0) [tile, toColumn] = [tile - 1, columns - 1];
  if (toColumn >= columns && tile % tileColumns < tileColumns - 1 && tile + 1 < tiles) [tile, toColumn] = [tile + 1, 0];
  if (toRow < 0 && tile >= tileColumns) [tile, toRow] = [tile - tileColumns, rows - 1];
  if (toRow >= rows && tile + tileColumns < tiles) [tile, toRow] = [tile + tileColumns, 0];
  toRow = Math.max(0, Math.min(rows - 1, toRow));
  toColumn = Math.max(0, Math.min(columns - 1, toColumn));
  if (!isStrip) return { tile, row: toRow, column: toColumn };
  return { tile, row: 0, column: Math.min(cells - 1, toRow * columns + toColumn) };
}
