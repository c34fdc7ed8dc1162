// Which axis of a tensor is what in its picture: rows, columns, tiles side by side, or a slider.
import type { AskSlice, TensorHead } from "../messages";
import type { SliceBlock, BlockCell, Span } from "./slice_block";

export const ROLES = ["tiles", "rows", "columns"] as const;
export type Role = (typeof ROLES)[number] | "slider";

/** A choice of axes, the positions of the sliders, and the part that is looked at closely. */
export interface AxisChoice {
  tiles: number; // an axis; -1: none
  rows: number;
  columns: number;
  index: number[]; // a position for each axis; only those of sliders count
  zoom: { rows: Span; columns: Span } | null;
}

/** The choice to begin with, as the server proposes it; `item` is the batch item that other views show. */
export function firstChoice(head: TensorHead, item: number): AxisChoice {
  const { tiles, rows, columns, shape, first } = head;
  const index = shape.map(() => 0);
  if (first >= 0 && shape.length) index[0] = Math.max(0, Math.min(shape[0] - 1, item - first));
  return { tiles, rows, columns, index, zoom: null };
}

/** What an axis is. */
export function roleOf(choice: AxisChoice, axis: number): Role {
  return ROLES.find((role) => choice[role] === axis) ?? "slider";
}

/** The choice with another role for an axis; the axis that had it takes the place of this one. */
export function withRole(choice: AxisChoice, axis: number, role: Role): AxisChoice {
  const before = roleOf(choice, axis);
  if (before === role) return choice;
  const next = { ...choice, zoom: null };
  const displaced = role === "slider" ? -1 : choice[role];
  if (before !== "slider") next[before] = displaced;
  if (role !== "slider") next[role] = axis;
  return next;
}

/** The choice with a slider moved; of an axis that is tiles, rows or columns this changes nothing that is seen. */
export function withPosition(choice: AxisChoice, axis: number, position: number): AxisChoice {
  return { ...choice, index: choice.index.map((old, n) => (n === axis ? position : old)) };
}

/** The choice for another tensor: the same, as far as its axes are the same. */
export function adaptedChoice(choice: AxisChoice, from: TensorHead, to: TensorHead, item: number): AxisChoice {
  if (from.axes.join() !== to.axes.join() || from.shape.length !== to.shape.length) return firstChoice(to, item);
  const index = choice.index.map((position, axis) => Math.max(0, Math.min(to.shape[axis] - 1, position)));
  return { ...choice, index, zoom: from.shape.join() === to.shape.join() ? choice.zoom : null };
}

/** The part of the question that says which slice. */
export function sliceQuestion({ tiles, rows, columns, index, zoom }: AxisChoice, mostCells: number): SlicePart {
  const length = ({ first, last }: Span): number => last - first + 1;
  return {
    tiles,
    rows,
    columns,
    index,
    firsts: [0, zoom?.rows.first ?? 0, zoom?.columns.first ?? 0],
    counts: [-1, zoom ? length(zoom.rows) : -1, zoom ? length(zoom.columns) : -1],
    most_cells: mostCells,
  };
}
export type SlicePart = Required<
  Pick<AskSlice, "tiles" | "rows" | "columns" | "index" | "firsts" | "counts" | "most_cells">
>;

const ZOOM_CELLS = 48; // rows and columns around a cell that is looked at closely

/** Look closely at what is around a cell of a block that was reduced. */
export function zoomedTo(choice: AxisChoice, head: TensorHead, block: SliceBlock, cell: BlockCell): AxisChoice {
  const [, rows, columns] = block.spansOf(cell);
  const around = ({ first, last }: Span, axis: number): Span => {
    const length = axis < 0 ? 1 : head.shape[axis];
    const start = Math.max(0, Math.min(length - ZOOM_CELLS, Math.round((first + last + 1 - ZOOM_CELLS) / 2)));
    return { first: start, last: Math.min(length, start + ZOOM_CELLS) - 1 };
  };
  return { ...choice, zoom: { rows: around(rows, choice.rows), columns: around(columns, choice.columns) } };
}

/** Show one tile alone; the axis of tiles becomes a slider. */
export function openedTile(choice: AxisChoice, tile: number): AxisChoice {
  return { ...withPosition(choice, choice.tiles, tile), tiles: -1, zoom: null };
}

/** One level in from a cell: its tile alone, or what is around it; null where it is all there is. */
export function entered(choice: AxisChoice, head: TensorHead, block: SliceBlock, cell: BlockCell): AxisChoice | null {
  if (choice.tiles >= 0 && head.shape[choice.tiles] > 1) return openedTile(choice, block.spansOf(cell)[0].first);
  return block.isReduced ? zoomedTo(choice, head, block, cell) : null;
}

/** The index of a cell in the tensor, with a span on an axis where it stands for several. */
export function indexOfCell(choice: AxisChoice, block: SliceBlock, cell: BlockCell): (number | Span)[] {
  const spans = block.spansOf(cell);
  return choice.index.map((position, axis) => {
    const span = spans[ROLES.findIndex((role) => choice[role] === axis)];
    return !span ? position : span.first === span.last ? span.first : span;
  });
}
