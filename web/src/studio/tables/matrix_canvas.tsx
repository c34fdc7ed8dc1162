// A square matrix as a picture, a pixel for each cell; mouse and arrow keys read it.
import { useLayoutEffect, useRef } from "preact/hooks";

import { useValue } from "../signal";
import { theme } from "../theme";
import { colourOf, moveCursor } from "./tensor_cell";

export type Cell = [number, number]; // row and column

interface MatrixCanvasProps {
  matrix: (number | null)[][]; // from -1 to 1
  label: string;
  sizePx?: number; // of a side; as wide as its place without
  cursor: Cell | null;
  onCursor: (cell: Cell) => void;
}

/** The picture; `onCursor` hears which cell is read. */
export function MatrixCanvas({ matrix, label, sizePx, cursor, onCursor }: MatrixCanvasProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const themeName = useValue(theme);
  const count = matrix.length;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(count, count);
    matrix.flat().forEach((value, index) => image.data.set([...colourOf(value, themeName), 255], index * 4));
    context.putImageData(image, 0, 0);
  }, [matrix, themeName]);
  const hover = (event: MouseEvent): void => {
    const box = canvas.current!.getBoundingClientRect();
    const cellAt = (from: number, size: number): number =>
      Math.min(count - 1, Math.max(0, Math.floor((from / size) * count)));
    onCursor([cellAt(event.clientY - box.top, box.height), cellAt(event.clientX - box.left, box.width)]);
  };
  const move = (event: KeyboardEvent): void => {
    const target = moveCursor(event.key, cursor ?? [0, 0], { rows: count, columns: count });
    if (!target) return;
    event.preventDefault();
    onCursor(target);
  };
  return (
    <canvas
      ref={canvas}
      class="tensor"
      role="img"
      tabIndex={0}
      aria-label={label}
      width={count}
      height={count}
      style={sizePx ? { width: `${sizePx}px`, height: `${sizePx}px` } : undefined}
      onMouseMove={hover}
      onKeyDown={move}
    />
  );
}
