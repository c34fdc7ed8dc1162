// A heat map of the similarity of every two rows.
import { useState } from "preact/hooks";

import { useValue } from "../signal";
import { theme } from "../theme";
import { MatrixCanvas, type Cell } from "./matrix_canvas";
import { colourOf } from "./tensor_cell";
import { formatValue } from "./value_format";

const [MAX_SIZE_PX, RESERVED_HEIGHT_PX] = [416, 300]; // maximum size of the map, and the height reserved for what is around it
const MIN_LABEL_PX = 11; // minimum row height in pixels for labels

/** The heat map; mouse and arrow keys read it. */
export function HeatMap({ labels, matrix }: { labels: string[]; matrix: (number | null)[][] }) {
  const [cursor, setCursor] = useState<Cell | null>(null);
  const count = matrix.length;
  const cell = Math.max(
    1,
    Math.min(28, Math.floor(Math.min(MAX_SIZE_PX, Math.max(200, window.innerHeight - RESERVED_HEIGHT_PX)) / count)),
  );
  return (
    <>
      <output class="reading">
        {cursor
          ? `${labels[cursor[0]]} and ${labels[cursor[1]]}: ${formatValue(matrix[cursor[0]][cursor[1]], 4) || "no value"}`
          : "Point at the picture, or go through it with the arrows."}
      </output>
      <div class="heat-map">
        {cell >= MIN_LABEL_PX && (
          <ul aria-hidden="true" style={{ lineHeight: `${cell}px` }}>
            {labels.map((label, row) => (
              <li key={row} title={label}>
                {label}
              </li>
            ))}
          </ul>
        )}
        <MatrixCanvas
          matrix={matrix}
          label={`Similarity of ${count} rows; arrows read it`}
          sizePx={count * cell}
          cursor={cursor}
          onCursor={setCursor}
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
