// Which cells of a layer's frame a small picture shows, and where.
import type { FrameHead } from "../messages";

/** Pixels of a thumbnail, row by row: the index of a cell in the frame, or -1 for none. */
export interface Thumbnail {
  width: number;
  height: number;
  cells: Int32Array;
  keepsShape: boolean; // whether a pixel must stay a square: it is an image
}

type Grid = FrameHead["grid"];
const READABLE = 4; // rows and columns of a map that can be told apart
const ONE_ROW = 10; // rows of a map from which on one row of maps fills the height

/** Lay out a frame in a place of `aspect` (width by height); `axes`: how many the layer has. */
export function arrangeCells(
  { grid, count }: Pick<FrameHead, "grid" | "count">,
  axes: number,
  aspect: number,
): Thumbnail {
  const [tileRows, tileColumns, rows, columns] = grid;
  const isMap = axes > 2 && rows >= READABLE && columns >= READABLE;
  if (isMap && tileRows * tileColumns > 1) return fewTiles(grid, aspect);
  if (axes === 1 && tileRows * tileColumns === 1) return wrapped(Math.min(count, rows * columns), aspect);
  return allTiles(grid, isMap);
}

// Units in a row, in as many lines as fill the place.
function wrapped(units: number, aspect: number): Thumbnail {
  const width = Math.max(1, Math.min(units, Math.ceil(Math.sqrt(units * aspect))));
  const height = Math.max(1, Math.ceil(units / width));
  const cells = new Int32Array(width * height).map((_, n) => (n < units ? n : -1));
  return { width, height, cells, keepsShape: false };
}

// The first maps, as large as can be told apart, with a line between them.
function fewTiles([tileRows, tileColumns, rows, columns]: Grid, aspect: number): Thumbnail {
  const lines = rows >= ONE_ROW ? 1 : 2;
  const height = lines * (rows + 1) - 1;
  const across = Math.max(1, Math.floor((height * aspect + 1) / (columns + 1)));
  const shown = Math.min(tileRows * tileColumns, lines * across);
  const width = Math.min(shown, across) * (columns + 1) - 1;
  const cells = new Int32Array(width * height).fill(-1);
  for (let tile = 0; tile < shown; tile++) {
    const [top, left] = [Math.floor(tile / across) * (rows + 1), (tile % across) * (columns + 1)];
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++)
        cells[(top + row) * width + left + column] = (tile * rows + row) * columns + column;
    }
  }
  return { width, height, cells, keepsShape: true };
}

function allTiles([tileRows, tileColumns, rows, columns]: Grid, keepsShape: boolean): Thumbnail {
  const [width, height] = [tileColumns * columns, tileRows * rows];
  const cells = new Int32Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const tile = Math.floor(y / rows) * tileColumns + Math.floor(x / columns);
      cells[y * width + x] = (tile * rows + (y % rows)) * columns + (x % columns);
    }
  }
  return { width, height, cells, keepsShape };
}
