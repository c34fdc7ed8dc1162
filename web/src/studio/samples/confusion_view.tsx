// A confusion matrix as a heat map: a row for each true class, a column for each predicted one.
import { useState } from "preact/hooks";

import type { Json } from "../messages";
import { parseNumbers } from "../non_finite";
import { MatrixCanvas, type Cell } from "../tables/matrix_canvas";
import { formatNumber } from "../tables/value_format";
import { normalised } from "./sample_shapes";

const MAX_NUMBERED = 20; // classes whose cells have room for a number
const [MIN_CELL_PX, MAX_CELL_PX, CELLS_PX] = [20, 40, 210]; // of a cell; of all cells of a row beside their names

/** The heat map; on request each row as shares of its sum. */
export function ConfusionView({ names, matrix, label }: { names: string[]; matrix: Json[][]; label: string }) {
  const [isShare, setShare] = useState(false);
  const counts = matrix.map((row) => row.map((cell) => Number(parseNumbers(cell))));
  const classes = counts.map((_, index) => names[index] ?? String(index));
  const shares = normalised(counts);
  const shown = isShare ? shares : counts;
  const View = counts.length <= MAX_NUMBERED ? NumberedMatrix : PaintedMatrix;
  return (
    <div class="confusion">
      <View classes={classes} shown={shown} counts={counts} isShare={isShare} label={label} />
      <div class="row between small">
        <label class="check">
          <input type="checkbox" checked={isShare} onChange={({ currentTarget }) => setShare(currentTarget.checked)} />
          Percent of each row
        </label>
        <span class="soft" title="The share of the diagonal">
          {diagonalText(counts)}
        </span>
      </div>
    </div>
  );
}

function diagonalText(counts: number[][]): string {
  const total = counts.flat().reduce((sum, count) => sum + count, 0);
  const right = counts.reduce((sum, row, index) => sum + row[index], 0);
  return total > 0 && Number.isFinite(total) ? `${((100 * right) / total).toFixed(1)}% on the diagonal` : "";
}

interface MatrixProps {
  classes: string[];
  shown: number[][];
  counts: number[][];
  isShare: boolean;
  label: string;
}

function NumberedMatrix({ classes, shown, counts, isShare, label }: MatrixProps) {
  const largest = isShare ? 1 : largestOf(counts);
  const cell = Math.max(MIN_CELL_PX, Math.min(MAX_CELL_PX, Math.floor(CELLS_PX / classes.length) - 1));
  return (
    <div class="confusion-box" tabIndex={0} role="region" aria-label={label}>
      <table style={{ "--cell": `${cell}px`, fontSize: cell < 28 ? "11px" : "12px" }}>
        <thead>
          <tr>
            <th class="corner">
              <span class="soft">true ↓ predicted →</span>
            </th>
            {classes.map((name, column) => (
              <th key={column} scope="col" title={name}>
                <span>{name}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, index) => (
            <tr key={index}>
              <th scope="row" title={classes[index]}>
                {classes[index]}
              </th>
              {row.map((value, column) => (
                <td
                  key={column}
                  class={value / largest > 0.55 ? "strong" : undefined}
                  style={{ "--share": `${Math.round(strengthOf(value, largest) * 100)}%` }}
                  title={cellText(classes, counts, index, column)}
                >
                  {isShare ? Math.round(100 * value) : formatNumber(value, 3)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// Many classes: a pixel for each cell, read by mouse and arrows.
function PaintedMatrix({ classes, shown, counts, isShare, label }: MatrixProps) {
  const [cursor, setCursor] = useState<Cell | null>(null);
  const largest = isShare ? 1 : largestOf(counts);
  const strengths = shown.map((row) => row.map((value) => -strengthOf(value, largest)));
  return (
    <>
      <MatrixCanvas
        matrix={strengths}
        label={`${label}: ${counts.length} classes; arrows read it`}
        cursor={cursor}
        onCursor={setCursor}
      />
      <output class="reading">
        {cursor
          ? cellText(classes, counts, ...cursor)
          : "Rows are true classes, columns predicted ones. Point at the picture, or go through it with the arrows."}
      </output>
    </>
  );
}

function cellText(classes: string[], counts: number[][], row: number, column: number): string {
  return `true ${classes[row]}, predicted ${classes[column]}: ${formatNumber(counts[row]?.[column] ?? NaN)}`;
}

function largestOf(counts: number[][]): number {
  let largest = 0;
  for (const row of counts) for (const count of row) if (Number.isFinite(count)) largest = Math.max(largest, count);
  return largest || 1;
}

function strengthOf(value: number, largest: number): number {
  return Number.isFinite(value) ? Math.min(1, Math.max(0, value / largest)) : 0;
}
