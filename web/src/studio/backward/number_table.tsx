// A tensor in the text: a number, a small table, or shape and statistics.
import { formatNumber } from "../tables/value_format";
import type { TensorFacts } from "./backward_steps";

const DIGITS = 4;

/** A shape as Python writes it. */
export function shapeText(shape: readonly number[]): string {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

/** A tensor. */
export function TensorView({ tensor }: { tensor: TensorFacts | null }) {
  if (!tensor) return <span class="soft">not kept</span>;
  const { numbers, shape } = tensor;
  if (!numbers) return <Statistics tensor={tensor} />;
  if (!numbers.length) return <span class="soft">empty {shapeText(shape)}</span>;
  if (!shape.length) return <span class="backward-number">{formatNumber(numbers[0], DIGITS)}</span>;
  return <NumberTable numbers={numbers} shape={shape} />;
}

// The last axis are columns, all others rows; where a matrix ends is a line.
function NumberTable({ numbers, shape }: { numbers: number[]; shape: number[] }) {
  const columns = shape[shape.length - 1];
  const block = shape.length > 2 ? shape[shape.length - 2] : 0;
  const rows = Array.from({ length: numbers.length / columns }, (_, row) =>
    numbers.slice(row * columns, (row + 1) * columns),
  );
  return (
    <div class="backward-scroll">
      <table class="backward-numbers" aria-label={`numbers of shape ${shapeText(shape)}`}>
        <tbody>
          {rows.map((cells, row) => (
            <tr key={row} class={block && row && row % block === 0 ? "block" : ""}>
              {cells.map((cell, column) => (
                <td key={column} class={cell === 0 ? "zero" : ""} title={`[${position(row, column, shape)}] ${cell}`}>
                  {formatNumber(cell, DIGITS)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function position(row: number, column: number, shape: readonly number[]): string {
  const index = [column];
  for (const length of shape.slice(0, -1).reverse()) {
    index.unshift(row % length);
    row = Math.floor(row / length);
  }
  return index.join(", ");
}

function Statistics({ tensor }: { tensor: TensorFacts }) {
  const { shape, minimum, maximum, mean, std, zeros, nans = 0, infs = 0 } = tensor;
  const number = (value: number | undefined): string => (value === undefined ? "–" : formatNumber(value, DIGITS));
  return (
    <span class="backward-statistics">
      <b>{shapeText(shape)}</b>
      {minimum !== undefined && (
        <span>
          {number(minimum)} … {number(maximum)}
        </span>
      )}
      {mean !== undefined && (
        <span class="soft">
          mean {number(mean)} · std {number(std)}
        </span>
      )}
      {zeros ? <span class="soft">{zeros.toLocaleString("en")} zeros</span> : null}
      {nans + infs ? <span class="backward-bad">{(nans + infs).toLocaleString("en")} NaN or infinite</span> : null}
    </span>
  );
}
