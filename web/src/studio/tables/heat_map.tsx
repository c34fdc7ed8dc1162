// A heat map of the similarity of every two rows.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { useValue } from "../signal";
import { theme } from "../theme";
import { moveCursor, colourOf } from "./tensor_cell";
import { formatValue } from "./value_format";

const [MAX_SIZE_PX, RESERVED_HEIGHT_PX] = [416, 300]; // maximum size of the map, and the height reserved for what is around it
const MIN_LABEL_PX = 11; // minimum row height in pixels for labels

/** The heat map; mouse and arrow keys read it. */
export function HeatMap({ labels, matrix }: { labels: string[]; matrix: (number | null)[][] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState<[number, number] | null>(null);
  const themeName = useValue(theme);
  const count = matrix.length;
  const cell = Math.max(1, Math.min(28, Math.floor(Math.min(MAX_SIZE_PX, Math.max(200, window.innerHeight - RESERVED_HEIGHT_PX)) / count)));
  useLayoutEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    const image = context.createImageData(count, count);
    matrix.flat().forEach((value, index) => image.data.set([...colourOf(value, themeName), 255], index * 4));
    context.putImageData(image, 0, 0);
  }, [matrix, themeName]);
  const hover = (event: MouseEvent): void => {
    const box = canvas.current!.getBoundingClientRect();
    const cellAt = (from: number, size: number): number => Math.min(count - 1, Math.max(0, Math.floor((from / size) * count)));
    setCursor([cellAt(event.clientY - box.top, box.height), cellAt(event.clientX - box.left, box.width)]);
  };
  const move = (event: KeyboardEvent): void => {
    const target = moveCursor(event.key, cursor ?? [0, 0], { rows: count, columns: count });
    if (!target) return;
    event.preventDefault();
    setCursor(target);
  };
  return (
    <>
      <output class="reading">{cursor ? `${labels[cursor[0]]} and ${labels[cursor[1]]}: ${formatValue(matrix[cursor[0]][cursor[1]], 4) || "no value"}` : "Point at the picture, or go through it with the arrows."}</output>
      <div class="heat-map">
        {cell >= MIN_LABEL_PX && (
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
        <HeatMapScale />
      </div>
    </>
  );
}

function HeatMapScale() {
  const themeName = useValue(theme);
  const colours = [1, 0.5, 0, -0.5, -1].map((value) => `rgb(${colourOf(value, themeName).join(" ")})`);
  return (
    <div class="scale" role="img" aria-label="Colours from -1, unlike, to 1, alike">
      <span>1</span>
      <span class="bar" style={{ background: `linear-gradient(${colours.join(", ")})` }} />
      <span>-1</span>
    </div>
  );
}
