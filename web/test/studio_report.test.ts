// Reports: scenes from bytes, numbers of units, rasters.
import assert from "node:assert/strict";
import { test } from "node:test";

import type { AskSlice, FrameHead, Json, SliceFrame, TensorHead } from "../src/studio/messages";
import { answerFromLayer, parseLayer } from "../src/studio/report/layer_answers";
import { ReportBlocks } from "../src/studio/report/report_blocks";
import { parseScene, rasterFrame, unitValue } from "../src/studio/report/scene_values";

function head(layer: string, fields: Partial<FrameHead> = {}): FrameHead {
  const grid: FrameHead["grid"] = [1, 1, 1, 2];
  const names = { look: 0, moment: 0, layer, variable: "Act", item: 0 };
  const counts = { nans: 0, infs: 0, negative_infs: 0, raster: false };
  return { ...names, grid, block: [1, 1], count: 2, lo: 0, hi: 1, ...counts, ...fields };
}

function join(...parts: Uint8Array[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

function utf8(value: unknown): Uint8Array {
  return new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));
}

function u32(number: number): Uint8Array {
  return new Uint8Array(new Uint32Array([number]).buffer);
}

function frame(fields: FrameHead, bytes: number[]): Uint8Array {
  const text = utf8(fields);
  const start = join(utf8("TCHF"), u32(text.length), text);
  return join(start, new Uint8Array((8 - (start.length % 8)) % 8), Uint8Array.from(bytes));
}

function pieces(...parts: Uint8Array[]): Uint8Array {
  return join(...parts.flatMap((part) => [u32(part.length), part]));
}

async function deflated(text: string): Promise<Uint8Array> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

test("a scene has a frame for each layer, and reasons for the others", () => {
  const missing = utf8({ missing: { b: "not saved" } });
  const scene = parseScene(pieces(missing, frame(head("a"), [1, 251])));
  assert.deepEqual([...scene.frames.keys()], ["a"]);
  assert.deepEqual(scene.missing, { b: "not saved" });
  assert.equal(unitValue(scene.frames.get("a"), 1), 1);
});

test("a cell that stands for several units is no unit's number", () => {
  assert.equal(unitValue({ head: head("a", { block: [1, 2] }), bytes: new Uint8Array([7]) }, 0), undefined);
});

test("a raster has a column for each moment, on one range, and keeps NaN", () => {
  const [first, second] = [head("a", { lo: 0, hi: 1 }), head("a", { lo: 0, hi: 2 })];
  const raster = rasterFrame(
    [{ head: first, bytes: new Uint8Array([1, 251]) }, undefined, { head: second, bytes: new Uint8Array([253, 251]) }],
    2,
  )!;
  assert.deepEqual([...raster.bytes], [1, 0, 253, 126, 0, 251]);
  assert.deepEqual(raster.head.grid, [1, 1, 2, 3]);
  assert.equal(rasterFrame([undefined], 2), null);
});

test("blocks are found by their keys, and what is not there is null", async () => {
  const block = await deflated("hello");
  const index = utf8([{ key: ["scene", "</script>", 3], start: 0, count: block.length }]);
  const blocks = new ReportBlocks(btoa(String.fromCharCode(...join(u32(index.length), index, block))));
  assert.equal(new TextDecoder().decode((await blocks.read("scene", "</script>", 3))!), "hello");
  assert.equal(blocks.read("scene", "Act", 3), null);
});

// Two channels of one row and two columns, of one item: 1, 2 and 3, 4.
function layerBlock(): Uint8Array {
  const tensor: TensorHead = {
    variable: "Act", parameter: "", doc: "", type: "uint8", shape: [1, 2, 1, 2], axes: ["batch", "channel", "row", "column"],
    tiles: 1, rows: 2, columns: 3, first: 0, items: 8, why: "",
  }; // prettier-ignore
  const name = { variable: "Act", parameter: "" };
  const slice: SliceFrame = {
    question: 0, count: 4, moment: 3, type: "uint8", coded: "uint8", shape: [2, 1, 2], firsts: [0, 0, 0], counts: [2, 1, 2],
    block: [1, 1], code: "", code_note: "",
  }; // prettier-ignore
  const value = {
    tensors: { moment: 3, step: 30, tensors: [tensor] },
    statistics: [{ ...name, facts: { count: 32 } }],
    slices: [name],
  };
  return pieces(utf8({ kind: "answer", question: 0, value }), frame(slice as unknown as FrameHead, [1, 2, 3, 4]));
}

const asked = (fields: Partial<AskSlice> = {}): AskSlice => ({
  kind: "ask_slice", question: 5, layer: "a", variable: "Act", tiles: 1, rows: 2, columns: 3, index: [0, 0, 0, 0], ...fields,
}); // prettier-ignore

test("a report answers with a layer's tensors, statistics and the view of it that it keeps", () => {
  const kept = parseLayer(layerBlock());
  const tensors = answerFromLayer(kept, { kind: "ask_tensors", question: 1, layer: "a", moment: -1 });
  assert.equal("value" in tensors && (tensors.value as { step: Json }).step, 30);
  const facts = answerFromLayer(kept, { kind: "ask_statistics", question: 2, layer: "a", variable: "Act" });
  assert.deepEqual(facts, { value: { count: 32 } });
  const whole = answerFromLayer(kept, asked());
  assert.deepEqual("slice" in whole && [...whole.slice[1]], [1, 2, 3, 4]);
});

test("a report cuts a tile out of the view that it keeps, and says what it does not have", () => {
  const kept = parseLayer(layerBlock());
  const tile = answerFromLayer(kept, asked({ tiles: -1, index: [0, 1, 0, 0] }));
  assert.deepEqual("slice" in tile && [tile.slice[0].shape, ...tile.slice[1]], [[1, 1, 2], 3, 4]);
  for (const other of [
    { rows: 1, tiles: 2 },
    { firsts: [0, 0, 1] as [number, number, number] },
    { index: [1, 0, 0, 0] },
  ])
    assert.match(JSON.stringify(answerFromLayer(kept, asked(other))), /keeps one view/);
  assert.match(JSON.stringify(answerFromLayer(kept, asked({ variable: "Grad" }))), /not in this report/);
});
