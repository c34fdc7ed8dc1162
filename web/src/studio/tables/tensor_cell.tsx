// A tensor in a table cell: a small grid of colours, with values on hover.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Json } from "../messages";
import { useValue } from "../signal";
import { parseColour } from "../network/values/colour_maps";
import { nonFiniteColours, nonFiniteKind } from "../non_finite";
import { theme, type Theme } from "../theme";
import { formatValue } from "./value_format";

const MAX_CELLS = 4096;

/** A tensor as a 2D plane; leading axes lie side by side. */
export interface TensorPlane {
  rows: number;
  columns: number;
  values: (number | null)[]; // null: no value
  indexAt: (row: number, column: number) => number[]; // the tensor index of a cell
}

/** Lay a nested list out on a plane. */
export function layOutPlane(cell: Json): TensorPlane {
  const shape = shapeOf(cell);
  const values = flattenCell(cell);
  const [rows, columns] = [shape[shape.length - 2] ?? 1, shape[shape.length - 1] ?? 1];
  const planes = Math.max(1, Math.floor(values.length / (rows * columns) || 1));
  const cells = new Array<number | null>(rows * columns * planes).fill(null);
  for (let index = 0; index < values.length; index++) {
    const [plane, offset] = [Math.floor(index / (rows * columns)), index % (rows * columns)];
    cells[Math.floor(offset / columns) * columns * planes + plane * columns + (offset % columns)] = values[index];
  }
  const indexAt = (row: number, column: number): number[] => {
    const number = Math.floor(column / columns) * rows * columns + row * columns + (column % columns);
    return unravelIndex(number, shape);
  };
  return { rows, columns: columns * planes, values: cells, indexAt };
}

function shapeOf(cell: Json): number[] {
  const shape: number[] = [];
  for (let part = cell; Array.isArray(part); part = part[0]) shape.push(part.length);
  return shape;
}

function flattenCell(cell: Json): (number | null)[] {
  return Array.isArray(cell) ? cell.flatMap(flattenCell) : [typeof cell === "number" ? cell : null];
}

function unravelIndex(number: number, shape: number[]): number[] {
  const index: number[] = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index.unshift(number % shape[axis]);
    number = Math.floor(number / shape[axis]);
  }
  return index;
}

const THEME_COLOURS: Record<Theme, Record<"cold" | "middle" | "hot" | "none", [number, number, number]>> = {
  light: { cold: [5, 97, 173], middle: [245, 246, 248], hot: [190, 60, 0], none: [200, 204, 210] },
  dark: { cold: [96, 178, 255], middle: [30, 35, 41], hot: [255, 140, 60], none: [70, 76, 84] },
};

/** The colour of a value from -1 (blue) over 0 to 1 (orange); NaN and the infinities have their own. */
export function colourOf(value: number | null, name: Theme): [number, number, number] {
  const { cold, middle, hot, none } = THEME_COLOURS[name];
  if (value === null) return none;
  const kind = nonFiniteKind(value);
  if (kind) return parseColour(nonFiniteColours()[kind]);
  const [end, strength] = [value < 0 ? cold : hot, Math.min(1, Math.abs(value))];
  return middle.map((from, channel) => Math.round(from + (end[channel] - from) * strength)) as [number, number, number];
}

/** The picture; `size` is the column's largest absolute value, where the colours end. */
export function TensorCell({ cell, size, height }: { cell: Json; size: number; height: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [title, setTitle] = useState("");
  const [cursor, setCursor] = useState<[number, number] | null>(null); // the keyboard cursor
  const plane = layOutPlane(cell);
  const themeName = useValue(theme);
  useLayoutEffect(() => paintPlane(canvas.current, plane, size, themeName), [cell, size, themeName]);
  if (plane.rows * plane.columns > MAX_CELLS) return <span class="soft">{plane.values.length} values</span>;
  const hover = (event: MouseEvent): void => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.min(plane.rows - 1, Math.floor(((event.clientY - box.top) / box.height) * plane.rows));
    const column = Math.min(plane.columns - 1, Math.floor(((event.clientX - box.left) / box.width) * plane.columns));
    setTitle(describeCell(plane, row, column));
  };
  const move = (event: KeyboardEvent): void => {
    const target = moveCursor(event.key, cursor ?? [0, 0], plane);
    if (!target) return;
    event.preventDefault(); // the arrows read values, and do not scroll the table
    setCursor(target);
  };
  const scale = Math.max(1, Math.min(8, Math.floor(height / plane.rows)));
  return (
    <span class="tensor-cell">
      <canvas
        ref={canvas}
        class="tensor"
        role="img"
        tabIndex={0}
        aria-label={`${summary(plane)}; arrows read them`}
        title={title}
        width={plane.columns}
        height={plane.rows}
        style={{
          width: `${Math.min(plane.columns * scale, 240)}px`,
          height: `${Math.min(plane.rows * scale, height)}px`,
        }}
        onMouseMove={hover}
        onKeyDown={move}
        onFocus={({ currentTarget }) => currentTarget.matches(":focus-visible") && setCursor([0, 0])}
        onBlur={() => setCursor(null)}
      />
      {cursor && <output class="tensor-value">{describeCell(plane, ...cursor)}</output>}
    </span>
  );
}

/** A cell's index and value as text. */
export function describeCell(plane: TensorPlane, row: number, column: number): string {
  const value = plane.values[row * plane.columns + column];
  return `[${plane.indexAt(row, column).join(", ")}] = ${value === null ? "no value" : formatValue(value)}`;
}

/** The cursor after an arrow, Home or End key; null for other keys. */
export function moveCursor(
  key: string,
  [row, column]: [number, number],
  { rows, columns }: Pick<TensorPlane, "rows" | "columns">,
): [number, number] | null {
  switch (key) {
    case "ArrowUp":
      return [Math.max(0, row - 1), column];
    case "ArrowDown":
      return [Math.min(rows - 1, row + 1), column];
    case "ArrowLeft":
      return [row, Math.max(0, column - 1)];
    case "ArrowRight":
      return [row, Math.min(columns - 1, column + 1)];
    case "Home":
      return [row, 0];
    case "End":
      return [row, columns - 1];
    default:
      return null;
  }
}

function summary({ rows, columns, values }: TensorPlane): string {
  const present = values.filter((value) => value !== null);
  const finite = present.filter((value) => Number.isFinite(value));
  const nonFiniteText = present.length - finite.length ? `, ${present.length - finite.length} not finite` : "";
  if (!finite.length) return `${rows} × ${columns} values${nonFiniteText}`;
  return `${rows} × ${columns} values from ${formatValue(Math.min(...finite))} to ${formatValue(Math.max(...finite))}${nonFiniteText}`;
}

function paintPlane(canvas: HTMLCanvasElement | null, plane: TensorPlane, size: number, name: Theme): void {
  const context = canvas?.getContext("2d");
  if (!context) return;
  const image = context.createImageData(plane.columns, plane.rows);
  plane.values.forEach((value, index) =>
    image.data.set([...colourOf(value === null ? null : value / (size || 1), name), 255], index * 4),
  );
  context.putImageData(image, 0, 0);
}

const maxCache = new WeakMap<Json[], { scannedRows: number; size: number }>();

/** The largest absolute value of a tensor column; each row is scanned once. */
export function maxAbsolute(cells: Json[]): number {
  const entry = maxCache.get(cells) ?? { scannedRows: 0, size: 0 };
  for (; entry.scannedRows < cells.length; entry.scannedRows++) {
    for (const value of flattenCell(cells[entry.scannedRows])) {
      if (value !== null && Number.isFinite(value)) entry.size = Math.max(entry.size, Math.abs(value));
    }
  }
  maxCache.set(cells, entry);
  return entry.size;
}
