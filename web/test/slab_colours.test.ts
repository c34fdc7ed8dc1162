import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import type { Amount } from "../src/graph/render/quantity_scale";
import { amountsOfLayers } from "../src/studio/colouring/layer_amounts";
import { RAMP, slabColours } from "../src/studio/colouring/slab_colours";
import type { Net, PlacedLayer } from "../src/studio/messages";
import { buildTree } from "../src/studio/network/fold/scene_tree";
import { foldNet, wholeNet } from "../src/studio/network/fold/visible_net";

const placed = (name: string): PlacedLayer => ({
  layer: { name, shape: [4], kind: "Linear", view: "auto", place: null, relation: "", other: "", align: ["", ""], space: null, also: [], holds: false, range: null },
  units: 4, grid: [1, 1, 2, 2], size: [2, 2], place: [0, 0, 0],
}); // prettier-ignore
const net: Net = {
  name: "net",
  layers: ["stem", "block.a", "block.b"].map(placed),
  projections: [],
  variables: [],
  modules: [{ path: "block", kind: "Block", parent: "", calls: 1, repeats: 1, output: "" }],
  token_names: [],
};

test("operations of a layer are counted together, and those between layers are nobody's", () => {
  const overlays = { time: [1, 2, 4, null], gradient: [null, "NaN", 3, 5] };
  const amounts = amountsOfLayers(["a", "a", "", "b"], overlays);
  deepEqual([...amounts.time], [["a", 3], ["b", null]]); // prettier-ignore
  deepEqual([...amounts.gradient], [["a", "NaN"], ["b", 5]]); // prettier-ignore
});

test("a closed module has what its layers have together, an open one is seen layer by layer", () => {
  const tree = buildTree(net);
  const amounts = new Map([["stem", 0.1], ["block.a", 0.4], ["block.b", 0.6]]); // prettier-ignore
  const closed = slabColours(foldNet(net, tree, new Set([""])), "time", amounts);
  deepEqual([...closed.slabs.values()].map(({ text }) => text), ["100 ms", "1000 ms"]); // prettier-ignore
  deepEqual([...closed.slabs.values()].map(({ fill }) => fill), [RAMP[0], RAMP[RAMP.length - 1]]); // prettier-ignore
  const open = slabColours(foldNet(net, tree, new Set(["", "block"])), "time", amounts);
  deepEqual([...open.slabs.keys()], ["stem", "block.a", "block.b"]);
});

test("a layer whose number is not known has no colour, NaN one of its own", () => {
  const amounts = new Map<string, Amount>([["stem", "NaN"], ["block.a", 1]]); // prettier-ignore
  const { slabs, hasNonFinite } = slabColours(wholeNet(net), "gradient", amounts);
  equal(slabs.get("stem")!.fill, "#c2187f");
  deepEqual(slabs.get("block.b"), { fill: "", text: "" });
  ok(hasNonFinite);
});
