// A slice of a tensor as the server cut it: its cells, and the places in the tensor that they stand for.
import type { SliceFrame } from "../messages";
import { exactText } from "./exact_text";

type Cells = Uint8Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array | Float32Array | Float64Array;

const ARRAYS = {
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
} as const;

/** A cell's tile, row and column in the block. */
export interface BlockCell {
  tile: number;
  row: number;
  column: number;
}

/** A range of positions on an axis; `last` is part of it. */
export interface Span {
  first: number;
  last: number;
}

/** The cells by tile, row and column. */
export class SliceBlock {
  readonly cells: Cells;

  constructor(
    readonly head: SliceFrame,
    bytes: Uint8Array,
  ) {
    const copy = bytes.slice(); // aligned for any type
    this.cells = new ARRAYS[head.coded](copy.buffer, 0, head.shape[0] * head.shape[1] * head.shape[2]);
  }

  get isReduced(): boolean {
    return this.head.block[0] * this.head.block[1] > 1;
  }

  indexOf({ tile, row, column }: BlockCell): number {
    const [, rows, columns] = this.head.shape;
    return (tile * rows + row) * columns + column;
  }

  cellAt(index: number): BlockCell {
    const [, rows, columns] = this.head.shape;
    const inside = index % (rows * columns);
    return { tile: Math.floor(index / (rows * columns)), row: Math.floor(inside / columns), column: inside % columns };
  }

  /** For colours; whole numbers of 64 bits may lose digits here. */
  numberAt(index: number): number {
    return Number(this.cells[index]);
  }

  /** The exact number. */
  textAt(index: number): string {
    return exactText(this.cells[index], this.head.type);
  }

  /** The tile, rows and columns of the tensor that a cell stands for. */
  spansOf({ tile, row, column }: BlockCell): [Span, Span, Span] {
    const { firsts, counts, block } = this.head;
    const span = (which: number, place: number, size: number): Span => ({
      first: firsts[which] + place * size,
      last: firsts[which] + Math.min((place + 1) * size, counts[which]) - 1,
    });
    return [span(0, tile, 1), span(1, row, block[0]), span(2, column, block[1])];
  }

  /** The least and the largest finite number, of one tile or of all; null without any. */
  range(tile = -1): [number, number] | null {
    const [tiles, rows, columns] = this.head.shape;
    const [from, to] = tile < 0 ? [0, tiles * rows * columns] : [tile * rows * columns, (tile + 1) * rows * columns];
    let [lo, hi] = [Infinity, -Infinity];
    for (let index = from; index < to; index++) {
      const value = Number(this.cells[index]);
      if (!Number.isFinite(value)) continue;
      if (value < lo) lo = value;
      if (value > hi) hi = value;
    }
    return lo <= hi ? [lo, hi] : null;
  }
}
