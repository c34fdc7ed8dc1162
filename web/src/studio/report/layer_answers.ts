// A report's answers to the inspector: a layer's tensors at a state, their statistics, one view of each.
import type { AskSlice, AskStatistics, AskTensors, Json, LayerTensors, SliceFrame, TensorHead } from "../messages";
import { splitFrame } from "../socket";
import { splitPieces } from "./scene_values";

type TensorName = Pick<TensorHead, "variable" | "parameter">;
type Slice = [SliceFrame, Uint8Array];

/** What a report keeps of a layer, as `studio/report/report_tensors.py` writes it. */
export interface LayerAnswers {
  tensors: LayerTensors;
  statistics: (TensorName & { facts: Json })[];
  slices: (TensorName & { slice: Slice })[];
}

const NO_STATISTICS = "Its statistics are not in this report.";
const NO_NUMBERS = "Its numbers are not in this report.";
const OTHER_VIEW = "This part is not in the report, which keeps one view of each tensor: choose the axes as they were.";

/** Parse a block: a JSON head, then slices in its order. */
export function parseLayer(block: Uint8Array): LayerAnswers {
  const [head, ...pieces] = splitPieces(block);
  const { value } = JSON.parse(new TextDecoder().decode(head)) as {
    value: Omit<LayerAnswers, "slices"> & { slices: TensorName[] };
  };
  const slices = value.slices.map((name, n) => ({
    ...name,
    slice: splitFrame(pieces[n].buffer as ArrayBuffer) as Slice,
  }));
  return { ...value, slices };
}

/** An answer: words as JSON, cells of a tensor, or why there is neither. */
export type LayerAnswer = { value: Json } | { slice: Slice } | { problem: string };

/** The answer to a question; a sentence where the report does not have it. */
export function answerFromLayer(kept: LayerAnswers, ask: AskTensors | AskStatistics | AskSlice): LayerAnswer {
  if (ask.kind === "ask_tensors") return { value: kept.tensors as unknown as Json };
  const isAsked = ({ variable, parameter }: TensorName): boolean =>
    variable === ask.variable && parameter === (ask.parameter ?? "");
  if (ask.kind === "ask_statistics") {
    const found = kept.statistics.find(isAsked);
    return found ? { value: found.facts } : { problem: NO_STATISTICS };
  }
  const [head, slice] = [kept.tensors.tensors.find(isAsked), kept.slices.find(isAsked)?.slice];
  if (!head || !slice) return { problem: NO_NUMBERS };
  const part = partOf(head, slice, ask);
  return part ? { slice: part } : { problem: OTHER_VIEW };
}

// The view that is kept, or one of its tiles.
function partOf(head: TensorHead, slice: Slice, ask: AskSlice): Slice | null {
  const { tiles = -1, rows = -1, columns = -1, index = [], firsts = [0, 0, 0], counts = [-1, -1, -1] } = ask;
  const isWhole = firsts.every((first) => first === 0) && counts.every((count) => count < 0);
  const isSlider = (axis: number): boolean => ![head.tiles, rows, columns].includes(axis);
  const isFirst = index.every((position, axis) => position === 0 || !isSlider(axis));
  if (!isWhole || !isFirst || rows !== head.rows || columns !== head.columns) return null;
  if (tiles === head.tiles) return slice;
  return tiles < 0 ? tileOf(slice, index[head.tiles] ?? 0) : null;
}

function tileOf([frame, bytes]: Slice, tile: number): Slice | null {
  const [tiles, rows, columns] = frame.shape;
  if (tile >= tiles) return null;
  const size = bytes.length / tiles;
  const shape: SliceFrame["shape"] = [1, rows, columns];
  const [counts, firsts] = [
    [1, ...frame.counts.slice(1)],
    [0, ...frame.firsts.slice(1)],
  ];
  const head = { ...frame, count: size, shape, counts, firsts } as SliceFrame;
  return [head, bytes.slice(tile * size, (tile + 1) * size)];
}
