// A tensor in a cell of a table: a little grid of colours, its values on hover.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Json } from "../messages";
import { useValue } from "../signal";
import { parts } from "../network/values/colour_maps";
import { strangeColours, strangeOf } from "../non_finite";
import { theme, type Theme } from "../theme";
import { plain } from "./value_format";

const MOST_CELLS = 4096;

/** A tensor as rows and columns; leading axes lie side by side. */
export interface Plane {
  rows: number;
  columns: number;
  values: (number | null)[]; // null where there is none
  at: (row: number, column: number) => number[]; // the index of a place
}

/** Lay a nested list out flat. */
export function planeOf(cell: Json): Plane {
  const shape = shapeOf(cell);
  const values = flat(cell);
  const [rows, columns] = [shape[shape.length - 2] ?? 1, shape[shape.length - 1] ?? 1];
  const planes = Math.max(1, Math.floor(values.length / (rows * columns) || 1));
  const laid = new Array<number | null>(rows * columns * planes).fill(null);
  for (let index = 0; index < values.length; index++) {
    const [plane, rest] = [Math.floor(index / (rows * columns)), index % (rows * columns)];
    laid[Math.floor(rest / columns) * columns * planes + plane * columns + (rest % columns)] = values[index];
  }
  const at = (row: number, column: number): number[] => {
    const number = Math.floor(column / columns) * rows * columns + row * columns + (column % columns);
    return indexOf(number, shape);
  };
  return { rows, columns: columns * planes, values: laid, at };
}

function shapeOf(cell: Json): number[] {
  const shape: number[] = [];
  for (let part = cell; Array.isArray(part); part = part[0]) shape.push(part.length);
  return shape;
}

function flat(cell: Json): (number | null)[] {
  return Array.isArray(cell) ? cell.flatMap(flat) : [typeof cell === "number" ? cell : null];
}

function indexOf(number: number, shape: number[]): number[] {
  const index: number[] = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index.unshift(number % shape[axis]);
    number = Math.floor(number / shape[axis]);
  }
  return index;
}

const ENDS: Record<Theme, Record<"cold" | "middle" | "hot" | "none", [number, number, number]>> = {
  light: { cold: [5, 97, 173], middle: [245, 246, 248], hot: [190, 60, 0], none: [200, 204, 210] },
  dark: { cold: [96, 178, 255], middle: [30, 35, 41], hot: [255, 140, 60], none: [70, 76, 84] },
};

/** The colour of a value from -1 (blue) over 0 to 1 (orange); NaN and the infinities have their own. */
export function tint(value: number | null, name: Theme): [number, number, number] {
  const { cold, middle, hot, none } = ENDS[name];
  if (value === null) return none;
  const strange = strangeOf(value);
  if (strange) return parts(strangeColours()[strange]);
  const [end, part] = [value < 0 ? cold : hot, Math.min(1, Math.abs(value))];
  return middle.map((from, channel) => Math.round(from + (end[channel] - from) * part)) as [number, number, number];
}

/** The picture; `size` is the largest value of the column, where colours end. */
export function Tensor({ cell, size, height }: { cell: Json; size: number; height: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [title, setTitle] = useState("");
  const [at, setAt] = useState<[number, number] | null>(null); // where the keys are
  const plane = planeOf(cell);
  const now = useValue(theme);
  useLayoutEffect(() => paint(canvas.current!, plane, size, now), [cell, size, now]);
  if (plane.rows * plane.columns > MOST_CELLS) return <span class="soft">{plane.values.length} values</span>;
  const hover = (event: MouseEvent): void => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.min(plane.rows - 1, Math.floor(((event.clientY - box.top) / box.height) * plane.rows));
    const column = Math.min(plane.columns - 1, Math.floor(((event.clientX - box.left) / box.width) * plane.columns));
    setTitle(said(plane, row, column));
  };
  const move = (event: KeyboardEvent): void => {
    const to = moved(event.key, at ?? [0, 0], plane);
    if (!to) return;
    event.preventDefault(); // it means a value, not the table's rows
    setAt(to);
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
        style={{ width: `${Math.min(plane.columns * scale, 240)}px`, height: `${Math.min(plane.rows * scale, height)}px` }}
        onMouseMove={hover}
        onKeyDown={move}
        onFocus={({ currentTarget }) => currentTarget.matches(":focus-visible") && setAt([0, 0])}
        onBlur={() => setAt(null)}
      />
      {at && <output class="tensor-value">{said(plane, ...at)}</output>}
    </span>
  );
}

/** A place of a tensor and its value, for people. */
export function said(plane: Plane, row: number, column: number): string {
  const value = plane.values[row * plane.columns + column];
  return `[${plane.at(row, column).join(", ")}] = ${value === null ? "no value" : plain(value)}`;
}

/** Where an arrow, Home or End takes a cursor among rows and columns; null for other keys. */
export function moved(key: string, [row, column]: [number, number], { rows, columns }: Pick<Plane, "rows" | "columns">): [number, number] | null {
  switch (key) {
    case "ArrowUp": return [Math.max(0, row - 1), column];
    case "ArrowDown": return [Math.min(rows - 1, row + 1), column];
    case "ArrowLeft": return [row, Math.max(0, column - 1)];
    case "ArrowRight": return [row, Math.min(columns - 1, column + 1)];
    case "Home": return [row, 0];
    case "End": return [row, columns - 1];
    default: return null;
  }
}

function summary({ rows, columns, values }: Plane): string {
  const known = values.filter((value) => value !== null);
  const finite = known.filter((value) => Number.isFinite(value));
  const others = known.length - finite.length ? `, ${known.length - finite.length} not finite` : "";
  if (!finite.length) return `${rows} × ${columns} values${others}`;
  return `${rows} × ${columns} values from ${plain(Math.min(...finite))} to ${plain(Math.max(...finite))}${others}`;
}

function paint(canvas: HTMLCanvasElement | null, plane: Plane, size: number, name: Theme): void {
  const context = canvas?.getContext("2d");
  if (!context) return;
  const image = context.createImageData(plane.columns, plane.rows);
  plane.values.forEach((value, index) => image.data.set([...tint(value === null ? null : value / (size || 1), name), 255], index * 4));
  context.putImageData(image, 0, 0);
}

const sizes = new WeakMap<Json[], { seen: number; size: number }>();

/** The largest absolute value of a column of tensors; each row is looked at once. */
export function sizeOf(cells: Json[]): number {
  const known = sizes.get(cells) ?? { seen: 0, size: 0 };
  for (; known.seen < cells.length; known.seen++) {
    for (const value of flat(cells[known.seen])) {
      if (value !== null && Number.isFinite(value)) known.size = Math.max(known.size, Math.abs(value));
    }
  }
  sizes.set(cells, known);
  return known.size;
}
