// Places slabs in a stack: a level for each step of what flows, branches side by side; a long stack goes on beside itself.
import type { Projection } from "../../messages";
import { extentOf, type PosedLayer } from "../scene/layer_pose";

const [LEVEL_HEIGHT, APART] = [4, 3];
const MAX_LEVELS = 60; // of a single stack
const MAX_IN_ROW = 6; // branches side by side; more go behind

/** Each layer's level: one more than the highest of its senders before it; where nothing flows, the one after the layer before. */
export function levelsOf(names: readonly string[], projections: readonly Projection[]): number[] {
  const order = new Map(names.map((name, n) => [name, n]));
  const senders = names.map(() => new Set<number>());
  const receivers = names.map(() => new Set<number>());
  const connected = new Set<number>();
  for (const { sender, receiver } of projections) {
    const [from, to] = [order.get(sender) ?? -1, order.get(receiver) ?? -1];
    if (from < 0 || to < 0 || from === to) continue;
    connected.add(from).add(to);
    if (from >= to) continue;
    senders[to].add(from);
    receivers[from].add(to);
  }
  const levels: number[] = [];
  names.forEach((_, n) => {
    if (n && !connected.has(n)) senders[n].add(n - 1);
    levels.push(Math.max(0, ...[...senders[n]].map((sender) => levels[sender] + 1)));
  });
  for (let n = names.length - 1; n > 0; n--) {
    const lowest = Math.min(...[...receivers[n]].map((receiver) => levels[receiver]));
    if (!senders[n].size && receivers[n].size) levels[n] = Math.max(0, lowest - 1); // just below what reads it
  }
  return levels;
}

/** Set the places of layers. */
export function stackLayers(layers: PosedLayer[], projections: readonly Projection[]): void {
  const names = layers.map(({ layer }) => layer.name);
  const levels = levelsOf(names, projections);
  layers.forEach(({ layer }, n) => {
    const beside = layer.relation ? names.indexOf(layer.other) : -1;
    if (beside >= 0) levels[n] = levels[beside];
  });
  for (const placed of layers) placed.layer = { ...placed.layer, relation: "", other: "" }; // its place is known
  const rows: PosedLayer[][] = [];
  layers.forEach((placed, n) => (rows[levels[n]] ??= []).push(placed));
  const filled = rows.filter(Boolean);
  const stacks = Math.ceil(filled.length / MAX_LEVELS);
  const high = Math.ceil(filled.length / Math.max(1, stacks));
  let axis = 0;
  for (let start = 0; start < filled.length; start += high) {
    const stack = filled.slice(start, start + high);
    let height = 0;
    const extents = stack.map((row) => {
      const extent = placeRow(row, axis, height);
      height += Math.max(LEVEL_HEIGHT, ...row.map((placed) => extentOf(placed).tall + 1)); // above what stands upright
      return extent;
    });
    const [left, right] = [Math.min(...extents.map(([from]) => from)), Math.max(...extents.map(([, to]) => to))];
    const shift = start ? axis - left : 0;
    for (const placed of stack.flat()) placed.place = [placed.place[0] + shift, placed.place[1], placed.place[2]];
    axis = right + shift + APART;
  }
}

// Place the layers of a level around an axis; returns how far they reach.
function placeRow(row: PosedLayer[], axis: number, height: number): [number, number] {
  let [z, from, to] = [0, Infinity, -Infinity];
  for (let start = 0; start < row.length; start += MAX_IN_ROW) {
    const part = row.slice(start, start + MAX_IN_ROW);
    const depth = Math.max(...part.map((placed) => extentOf(placed).deep));
    const width = part.reduce((sum, { size }) => sum + size[0], 0) + APART * (part.length - 1);
    let x = axis - width / 2;
    if (start) z -= depth / 2;
    [from, to] = [Math.min(from, x), Math.max(to, x + width)];
    for (const placed of part) {
      placed.place = [x + placed.size[0] / 2, height, z];
      x += placed.size[0] + APART;
    }
    z -= depth / 2 + APART;
  }
  return [from, to];
}
