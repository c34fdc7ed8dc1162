// How alike every two rows are, as a square of colours.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { useValue } from "../signal";
import { theme } from "../theme";
import { moved, tint } from "./tensor_cell";
import { plain } from "./value_format";

const [ROOM, ABOVE] = [416, 300]; // pixels that the square has at most, and that it leaves to what is around it
const READABLE = 11; // pixels of a row from which on its label is written

/** The square; the mouse and the arrows read it. */
export function HeatMap({ labels, matrix }: { labels: string[]; matrix: (number | null)[][] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<[number, number] | null>(null);
  const now = useValue(theme);
  const count = matrix.length;
  const cell = Math.max(1, Math.min(28, Math.floor(Math.min(ROOM, Math.max(200, window.innerHeight - ABOVE)) / count)));
  useLayoutEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    const image = context.createImageData(count, count);
    matrix.flat().forEach((value, index) => image.data.set([...tint(value, now), 255], index * 4));
    context.putImageData(image, 0, 0);
  }, [matrix, now]);
  const hover = (event: MouseEvent): void => {
    const box = canvas.current!.getBoundingClientRect();
    const place = (from: number, size: number): number => Math.min(count - 1, Math.max(0, Math.floor((from / size) * count)));
    setAt([place(event.clientY - box.top, box.height), place(event.clientX - box.left, box.width)]);
  };
  const move = (event: KeyboardEvent): void => {
    const to = moved(event.key, at ?? [0, 0], { rows: count, columns: count });
    if (!to) return;
    event.preventDefault();
    setAt(to);
  };
  return (
    <>
      <output class="reading">{at ? `${labels[at[0]]} and ${labels[at[1]]}: ${plain(matrix[at[0]][at[1]], 4) || "no value"}` : "Point at the picture, or go through it with the arrows."}</output>
      <div class="heat-map">
        {cell >= READABLE && (
          <ul aria-hidden="true" style={{ lineHeight: `${cell}px` }}>
            {labels.map((label, row) => (
              <li key={row} title={label}>{label}</li>
            ))}
          </ul>
        )}
        <canvas
          ref={canvas}
          class="tensor"
          role="img"
          tabIndex={0}
          aria-label={`Similarity of ${count} rows; arrows read it`}
          width={count}
          height={count}
          style={{ width: `${count * cell}px`, height: `${count * cell}px` }}
          onMouseMove={hover}
          onKeyDown={move}
        />
        <Scale />
      </div>
    </>
  );
}

function Scale() {
  const now = useValue(theme);
  const colours = [1, 0.5, 0, -0.5, -1].map((value) => `rgb(${tint(value, now).join(" ")})`);
  return (
    <div class="scale" role="img" aria-label="Colours from -1, unlike, to 1, alike">
      <span>1</span>
      <span class="bar" style={{ background: `linear-gradient(${colours.join(", ")})` }} />
      <span>-1</span>
    </div>
  );
}
