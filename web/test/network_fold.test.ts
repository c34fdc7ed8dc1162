// What the 3D view folds: the tree, what is open at first, arrows between slabs, and where they stand.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import type { AlertSeen, FrameHead, ModuleNode, Net, PlacedLayer, Projection } from "../src/studio/messages";
import { findFaults } from "../src/studio/network/fold/faults";
import type { Frame } from "../src/studio/network/values/value_ranges";
import { findNodes } from "../src/studio/network/fold/node_search";
import { Folding } from "../src/studio/network/fold/folding";
import { buildTree, canFold, walk } from "../src/studio/network/fold/scene_tree";
import { foldNet, initiallyOpen, shownNodes } from "../src/studio/network/fold/visible_net";

const placed = (name: string, holds = false): PlacedLayer => ({
  layer: { name, shape: [4], kind: holds ? "Block" : "Linear", view: "auto", place: null, relation: "", other: "", align: ["", ""], space: null, also: [], holds, range: null },
  units: 4, grid: [1, 1, 2, 2], size: [2, 2], place: [0, 0, 0],
}); // prettier-ignore
const module = (path: string, parent: string, repeats = 1, output = ""): ModuleNode => ({
  path,
  kind: "Block",
  parent,
  calls: 1,
  repeats,
  output,
});
const arrow = (sender: string, receiver: string): Projection => ({
  name: `${sender}-${receiver}`, sender, receiver, kind: "", shape: [], stride: [], padding: [], dilation: [], groups: 1, type: "forward",
}); // prettier-ignore

// A stem, `count` equal blocks of two layers and a way around them, a head.
function blocks(count: number, repeats = true): Net {
  const layers = [placed("Input"), placed("stem")];
  const modules = [module("stem", "", 1, "stem")];
  const projections = [arrow("Input", "stem")];
  let before = "stem";
  for (let n = 0; n < count; n++) {
    const path = `h.${n}`;
    layers.push(placed(`${path}.a`), placed(`${path}.b`), placed(path, true));
    modules.push(
      module(path, "", repeats ? (n ? 0 : count) : 1, path),
      module(`${path}.a`, path, 1, `${path}.a`),
      module(`${path}.b`, path, 1, `${path}.b`),
    );
    projections.push(
      arrow(before, `${path}.a`),
      arrow(`${path}.a`, `${path}.b`),
      arrow(`${path}.b`, path),
      arrow(before, path),
    );
    before = path;
  }
  layers.push(placed("head"));
  modules.push(module("head", "", 1, "head"));
  projections.push(arrow(before, "head"));
  return { name: "net", layers, projections, variables: [], modules, token_names: [] };
}

const titles = (net: Net, open: ReadonlySet<string>): string[] =>
  shownNodes(buildTree(net).root, open).map(({ title, count }) => (count > 1 ? `${title} ×${count}` : title));

test("equal blocks open as one stack, at the depth that fits", () => {
  const net = blocks(12);
  deepEqual(titles(net, initiallyOpen(buildTree(net))), ["Input", "stem", "h.0–11 ×12", "head"]);
});

test("blocks that differ open one by one while they fit", () => {
  const few = blocks(3, false);
  deepEqual(titles(few, initiallyOpen(buildTree(few))), [
    "Input",
    "stem",
    "a",
    "b",
    "output",
    "a",
    "b",
    "output",
    "a",
    "b",
    "output",
    "head",
  ]);
  const many = blocks(12, false);
  equal(titles(many, initiallyOpen(buildTree(many))).length, 15);
});

test("an open run shows its blocks, an open block its layers and what it returns", () => {
  const net = blocks(4);
  const tree = buildTree(net);
  const run = [...walk(tree.root)].find(({ sort }) => sort === "run")!;
  deepEqual(titles(net, new Set(["", run.key])), ["Input", "stem", "h.0", "h.1", "h.2", "h.3", "head"]);
  deepEqual(titles(net, new Set(["", run.key, "h.1"])), [
    "Input",
    "stem",
    "h.0",
    "a",
    "b",
    "output",
    "h.2",
    "h.3",
    "head",
  ]);
});

test("a closed module shows what it returned, a closed run what its last module returned", () => {
  const { net } = foldNet(blocks(3), buildTree(blocks(3)), new Set([""]));
  deepEqual(net.layers.map(({ layer }) => layer.name), ["Input", "stem", "h.2", "head"]); // prettier-ignore
});

test("a closed module whose result no layer has says whose values it shows", () => {
  const net = blocks(1);
  net.modules = net.modules.map((module) => ({ ...module, output: "" }));
  net.layers = net.layers.filter(({ layer }) => !layer.holds);
  const details = [...foldNet(net, buildTree(net), new Set([""])).items.values()].map(({ detail }) => detail);
  deepEqual(details, ["Linear · 4", "Linear · 4", "Block · 4 · values of h.0.b", "Linear · 4"]);
});

test("arrows go between what is shown, each once, and none inside of what is closed", () => {
  const { net } = foldNet(blocks(3), buildTree(blocks(3)), new Set([""]));
  deepEqual(net.projections.map(({ sender, receiver }) => [sender, receiver]), [["Input", "stem"], ["stem", "h.2"], ["h.2", "head"]]); // prettier-ignore
});

test("a way around the layers of an open block is a skip", () => {
  const tree = buildTree(blocks(1));
  const { net } = foldNet(blocks(1), tree, new Set(["", "h.0"]));
  deepEqual(net.projections.filter(({ type }) => type === "skip").map(({ sender, receiver }) => [sender, receiver]), [["stem", "h.0"]]); // prettier-ignore
});

test("no two slabs stand in the same place", () => {
  for (const open of [
    new Set([""]),
    new Set(["", "h.0 ×12"]),
    new Set(["", "h.0 ×12", ...Array.from({ length: 12 }, (_, n) => `h.${n}`)]),
  ]) {
    const { net } = foldNet(blocks(12), buildTree(blocks(12)), open);
    equal(new Set(net.layers.map(({ place }) => place.join())).size, net.layers.length);
  }
});

test("a frame stands around the layers of each open module", () => {
  const { frames } = foldNet(blocks(3), buildTree(blocks(3)), new Set(["", "h.0 ×3", "h.1"]));
  deepEqual(frames.map(({ node, members, depth }) => [node.title, members, depth]), [
    ["h.0–2", ["h.0", "h.1.a", "h.1.b", "h.1", "h.2"], 0],
    ["h.1", ["h.1.a", "h.1.b", "h.1"], 1],
  ]); // prettier-ignore
});

test("a module that is called several times is a layer for each call, not a module that holds them", () => {
  const net: Net = {
    ...blocks(0),
    layers: ["Input", "pool", "pool:2", "pool:3"].map((name) => placed(name)),
    modules: [module("pool", "", 1, "pool")],
  };
  deepEqual(titles(net, new Set([""])), ["Input", "pool", "pool:2", "pool:3"]);
});

test("networks whose layers somebody placed, or without modules, do not fold", () => {
  const net = blocks(2);
  ok(canFold(net) && !canFold({ ...net, modules: [] }));
  net.layers[1].layer.place = [0, 0, 0];
  ok(!canFold(net));
});

test("entering opens and goes there, leaving closes and goes out, the root folds all again", () => {
  const folding = new Folding();
  folding.setNet(blocks(12));
  const shown = (): number => folding.visible.get()!.net.layers.length;
  equal(shown(), 4);
  const run = folding.visible.get()!.items.get("h.11")!.node!;
  folding.enter(run);
  equal(shown(), 15);
  folding.enter(folding.tree!.nodes.get("h.5")!);
  deepEqual([shown(), folding.focus.get()?.key], [17, "h.5"]);
  folding.leave(folding.focus.get()!);
  deepEqual([shown(), folding.focus.get()?.key], [15, run.key]);
  folding.goTo(null);
  deepEqual([shown(), folding.focus.get()], [4, null]);
});

test("revealing a layer opens everything around it", () => {
  const folding = new Folding();
  folding.setNet(blocks(12));
  folding.reveal(folding.find("h.7.b")!);
  ok(folding.visible.get()!.items.has("h.7.b"));
  equal(folding.focus.get()?.key, "h.7");
});

test("the same network again keeps what is open", () => {
  const folding = new Folding();
  folding.setNet(blocks(12));
  folding.reveal(folding.find("h.7.b")!);
  folding.setNet(blocks(12));
  ok(folding.visible.get()!.items.has("h.7.b"));
  folding.setNet(blocks(3));
  equal(folding.visible.get()!.net.layers.length, 4);
});

test("layers are found by name, type and shape", () => {
  const tree = buildTree(blocks(12));
  equal(findNodes(tree, "h.7.b")[0].key, "h.7.b");
  equal(findNodes(tree, "h.7 LINEAR").length, 2);
  equal(findNodes(tree, "nothing of the kind").length, 0);
  ok(findNodes(tree, "block").every(({ kind, key }) => /block/i.test(kind + key)));
});

test("thousands of blocks that differ stay closed, each its own slab", () => {
  const net = blocks(2000, false);
  const folding = new Folding();
  folding.setNet(net);
  equal(folding.visible.get()!.net.layers.length, 40); // ranges of them
});

test("the first slab with NaN is named so, later ones and alerts inside of closed modules are marked", () => {
  const folding = new Folding();
  folding.setNet(blocks(12));
  const frame = (nans: number, infs = 0): Frame => ({
    head: { nans, infs, negative_infs: 0 } as FrameHead,
    bytes: new Uint8Array(),
  });
  const frames = new Map([["Input", frame(0)], ["stem", frame(0)], ["h.11", frame(2)], ["head", frame(1, 1)]]); // prettier-ignore
  const alert = (layer: string, step: number, severity = "warning"): AlertSeen => ({
    text: "",
    severity,
    step,
    rule: "",
    layer,
    id: "",
    follows: "",
    began_here: false,
  });
  const alerts = [alert("h.3.a", 5), alert("h.3.a", 9), alert("stem", 7, "info")];
  const faults = findFaults(folding.visible.get()!, frames, alerts, 6, "forward");
  deepEqual([...faults], [["h.11", { text: "first NaN · 1 alert", isFirst: true }], ["head", { text: "NaN, ∞", isFirst: false }]]); // prettier-ignore
});

// A Sequential of `count` layers; every second one of another kind, unless they are all alike.
function sequential(count: number, isAlike = true): Net {
  const layers = Array.from({ length: count }, (_, n) => placed(String(n)));
  const input = placed("Input");
  input.layer.kind = "Input";
  layers.forEach(({ layer }, n) => (layer.kind = isAlike || n % 2 ? "Linear" : "Conv1d"));
  const modules = layers.map(({ layer }) => module(layer.name, "", 1, layer.name));
  const projections = layers.slice(1).map((_, n) => arrow(String(n), String(n + 1)));
  return { name: "net", layers: [input, ...layers], projections, variables: [], modules, token_names: [] };
}

test("thousands of equal layers in a row are one stack, which opens in ranges", () => {
  const tree = buildTree(sequential(2000));
  const shown = (open: string[]): string[] => shownNodes(tree.root, new Set(["", ...open])).map(({ title, count }) => `${title} ×${count}`); // prettier-ignore
  deepEqual(shown([...initiallyOpen(tree)]), ["Input ×1", "0–1999 ×2000"]);
  const inside = shown(["0 ×2000"]);
  deepEqual(inside.slice(0, 3), ["Input ×1", "0–49 ×50", "50–99 ×50"]);
  equal(inside.length, 41);
  equal(shown(["0 ×2000", "50 – 99"]).length, 41 - 1 + 50);
  equal(tree.nodes.get("0 ×2000")!.face!.layer.name, "1999", "the values of the last");
});

test("layers of different kinds in a long row are folded into ranges, too", () => {
  const tree = buildTree(sequential(2000, false));
  const shown = shownNodes(tree.root, new Set([""]));
  ok(shown.length <= 40);
  equal(shown[1].kind, "51 layers");
  deepEqual([...walk(tree.root)].filter(({ sort }) => sort === "layer").length, 2001);
});

test("a network of 120 layers in a row stays as it is", () => {
  equal(shownNodes(buildTree(sequential(119)).root, new Set([""])).length, 120);
});

// A judge that sees what it is given, then what a maker has made.
function twoNets(): Net {
  const names = ["Input", "judge.0", "judge.1", "maker.0", "maker.1", "judge.0:2", "judge.1:2"];
  const modules = ["judge", "maker"].flatMap((path) => [
    module(path, "", 1, `${path}.1`),
    module(`${path}.0`, path, 1, `${path}.0`),
    module(`${path}.1`, path, 1, `${path}.1`),
  ]);
  const pairs = [["Input", "judge.0"], ["judge.0", "judge.1"], ["Input", "maker.0"], ["maker.0", "maker.1"], ["maker.1", "judge.0:2"], ["judge.0:2", "judge.1:2"]]; // prettier-ignore
  const projections = pairs.map(([sender, receiver]) => arrow(sender, receiver));
  return { ...blocks(1), layers: names.map((name) => placed(name)), modules, projections };
}

test("a module that ran twice stays one slab at first, after all that it reads", () => {
  const net = twoNets();
  const tree = buildTree(net);
  const { items, net: shown } = foldNet(net, tree, initiallyOpen(tree));
  deepEqual([...items.values()].map(({ title }) => title), ["Input", "maker.0", "maker.1", "judge"]); // prettier-ignore
  deepEqual([...new Set(shown.projections.map(({ type }) => type))].sort(), ["forward", "skip"]);
});

test("a shared part does not keep a module closed", () => {
  const net = twoNets();
  net.layers = net.layers.filter(({ layer }) => layer.name !== "judge.0:2");
  ok(initiallyOpen(buildTree(net)).has("judge"));
});
