// Names of tokens at attention heads in the inspector: in what is read, and beside a head that is seen alone.
import type { TensorHead } from "../messages";
import { headNames, lookText, type HeadNames } from "../token_names";
import type { AxisChoice } from "./axis_choice";
import type { PictureLayout } from "./picture_layout";
import type { SliceBlock, Span } from "./slice_block";

export const NAMES_PX = 64; // beside and above the picture
const MIN_CELL_PX = 9;

/** From which token to which a cell of heads looks; "" without names, and for a cell that stands for several. */
export function lookOf(head: TensorHead, index: readonly (number | Span)[], names: readonly string[][]): string {
  const [query, key] = [head.axes.indexOf("query"), head.axes.indexOf("key")];
  if (query < 0 || key < 0 || !names.length) return "";
  const [item, row, column] = [head.first < 0 ? 0 : index[0], index[query], index[key]];
  if (typeof item !== "number" || typeof row !== "number" || typeof column !== "number") return "";
  const shape = [head.shape[query], head.shape[key]];
  return lookText(headNames(names, item + Math.max(0, head.first), shape), row, column);
}

/** The names beside a picture of one head, queries as rows and keys as columns; null where there is no place. */
export function marginNames(
  head: TensorHead,
  choice: AxisChoice,
  block: SliceBlock,
  names: readonly string[][],
): HeadNames | null {
  const isHead = head.axes[choice.rows] === "query" && head.axes[choice.columns] === "key";
  if (!isHead || !names.length || block.head.shape[0] !== 1 || block.isReduced || choice.zoom) return null;
  const item = head.first < 0 ? 0 : choice.index[0] + head.first;
  const own = headNames(names, item, [head.shape[choice.rows], head.shape[choice.columns]]);
  return own.rows || own.columns ? own : null;
}

/** The names, positioned around the picture. */
export function TokenMargins({ names, layout }: { names: HeadNames; layout: PictureLayout }) {
  const { cellWidth, cellHeight } = layout;
  return (
    <div class="token-margins" aria-hidden="true">
      {cellHeight >= MIN_CELL_PX &&
        names.rows?.map((name, row) => (
          <span key={`row ${row}`} class="row" style={{ top: `${NAMES_PX + (row + 0.5) * cellHeight}px` }}>
            {name}
          </span>
        ))}
      {cellWidth >= MIN_CELL_PX &&
        names.columns?.map((name, column) => (
          <span key={`column ${column}`} class="column" style={{ left: `${NAMES_PX + (column + 0.5) * cellWidth}px` }}>
            {name}
          </span>
        ))}
    </div>
  );
}
