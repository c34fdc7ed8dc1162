// What the 3D view shows of a tree: closed modules and open layers, the arrows between them, frames around open modules.
import type { Net, PlacedLayer, Projection } from "../../messages";
import { levelsOf, stackLayers } from "./stacking";
import type { PosedLayer } from "../scene/layer_pose";
import { buildTree, canFold, pathTo, walk, type SceneTree, type TreeNode } from "./scene_tree";

const MAX_OPEN = 18; // slabs that a network opens with
const MIN_STACK = 3; // equal modules that stay a stack at first

/** One slab of the scene. */
export interface SceneItem {
  node: TreeNode | null; // null in a network without a tree
  title: string;
  detail: string;
  canOpen: boolean;
  count: number; // of a run: ×N
}

/** A frame around the members of an open module. */
export interface SceneFrame {
  node: TreeNode;
  members: string[]; // names of layers
  depth: number; // 0 for the outermost
}

/** A network as it is shown. */
export interface VisibleNet {
  net: Net; // its layers are those that are shown, with their places
  items: Map<string, SceneItem>; // by the layer's name
  frames: SceneFrame[];
}

/** A network without folding, or with nothing to fold. */
export function wholeNet(net: Net): VisibleNet {
  const item = ({ layer }: PlacedLayer): SceneItem => ({
    node: null,
    title: layer.name,
    detail: layer.shape.join(" × "),
    canOpen: false,
    count: 1,
  });
  return { net, items: new Map(net.layers.map((placed) => [placed.layer.name, item(placed)])), frames: [] };
}

/** The tree of a network; null if there is nothing to fold. */
export function treeOf(net: Net | null): SceneTree | null {
  return net && canFold(net) ? buildTree(net) : null;
}

/** What is open at first: level by level, as much as fits. */
export function initiallyOpen({ root }: SceneTree): Set<string> {
  let open = new Set([root.key]);
  for (;;) {
    const closed = shownNodes(root, open).filter(({ children }) => children.length);
    const depth = Math.min(...closed.map((node) => pathTo(node).length));
    const level = closed.filter((node) => pathTo(node).length === depth);
    const isSmall = (node: TreeNode): boolean => node.sort !== "run" && node.count < MIN_STACK && !ranAgain(node);
    const choices = [level, closed].map((nodes) => nodes.filter(isSmall));
    const next = choices
      .map((nodes) => new Set([...open, ...nodes.map(({ key }) => key)]))
      .find((set) => set.size > open.size && shownNodes(root, set).length <= MAX_OPEN);
    if (!next) return open;
    open = next;
  }
}

// Whether a module was called several times: its parts would stand side by side with themselves, frame within frame.
function ranAgain(node: TreeNode): boolean {
  const names = new Set([...walk(node)].flatMap(({ sort, face }) => (sort === "layer" ? [face!.layer.name] : [])));
  const first = [...names].filter((name) => !/:\d+$/.test(name));
  return first.length > 0 && first.every((name) => names.has(`${name}:2`));
}

/** The slabs that are shown: what is closed, and layers, of open modules. */
export function shownNodes(node: TreeNode, open: ReadonlySet<string>): TreeNode[] {
  return node.children.flatMap((child) =>
    child.children.length && open.has(child.key) ? shownNodes(child, open) : [child],
  );
}

/** Fold a network. */
export function foldNet(net: Net, tree: SceneTree, open: ReadonlySet<string>): VisibleNet {
  const nodes = inOrder(
    net,
    shownNodes(tree.root, open).filter(({ face }) => face !== null),
  );
  const shown = new Map<TreeNode, string>(); // node -> the name of its layer
  const owners = new Map<string, string>(); // layer -> the layer of the slab that it is in
  for (const node of nodes) {
    const name = node.face!.layer.name;
    shown.set(node, name);
    for (const leaf of walk(node)) if (leaf.sort === "layer") owners.set(leaf.face!.layer.name, name);
  }
  const layers = nodes.map(({ face }): PosedLayer => ({ ...face!, stands: face!.layer.view === "heads" }));
  const names = layers.map(({ layer }) => layer.name);
  const projections = withTypes(names, joinProjections(net.projections, owners));
  stackLayers(layers, projections);
  const items = new Map(nodes.map((node) => [shown.get(node)!, itemOf(node)]));
  return { net: { ...net, layers, projections }, items, frames: framesOf(tree.root, open, shown) };
}

// In the order in which they ran; what ran several times stands where its last call does, after all that it reads.
function inOrder(net: Net, nodes: TreeNode[]): TreeNode[] {
  const order = new Map(net.layers.map(({ layer }, n) => [layer.name, n]));
  const leaves = (node: TreeNode): number[] =>
    [...walk(node)].flatMap(({ sort, face }) => (sort === "layer" ? [order.get(face!.layer.name)!] : []));
  const places = new Map(
    nodes.map((node) => [node, ranAgain(node) ? Math.max(...leaves(node)) : Math.min(...leaves(node))]),
  );
  return nodes.sort((first, second) => places.get(first)! - places.get(second)!);
}

function itemOf(node: TreeNode): SceneItem {
  const shape = node.face!.layer.shape.join(" × ");
  const source = node.hasOutput ? "" : `values of ${node.face!.layer.name}`; // its own are not known
  const count = node.count > 1 ? ` ×${node.count}` : "";
  return {
    node,
    title: `${node.title}${count}`,
    detail: [node.kind, shape, source].filter(Boolean).join(" · "),
    canOpen: node.children.length > 0,
    count: node.count,
  };
}

// Projections between slabs; of several between the same two the one with weights.
function joinProjections(projections: readonly Projection[], owners: ReadonlyMap<string, string>): Projection[] {
  const joined = new Map<string, Projection>();
  for (const projection of projections) {
    const [sender, receiver] = [owners.get(projection.sender), owners.get(projection.receiver)];
    if (!sender || !receiver || (sender === receiver && projection.sender !== projection.receiver)) continue;
    if (sender === receiver && projection.sender !== sender) continue; // a loop inside of a closed module
    const key = JSON.stringify([sender, receiver]);
    if (!joined.has(key) || (!joined.get(key)!.kind && projection.kind))
      joined.set(key, { ...projection, sender, receiver });
  }
  return [...joined.values()];
}

function withTypes(names: string[], projections: Projection[]): Projection[] {
  const order = new Map(names.map((name, n) => [name, n]));
  const levels = levelsOf(names, projections);
  return projections.map((projection) => {
    const [from, to] = [order.get(projection.sender)!, order.get(projection.receiver)!];
    const type = from >= to ? "recurrent" : levels[to] - levels[from] > 1 ? "skip" : "forward";
    return { ...projection, type };
  });
}

function framesOf(root: TreeNode, open: ReadonlySet<string>, shown: ReadonlyMap<TreeNode, string>): SceneFrame[] {
  const frames: SceneFrame[] = [];
  const visit = (node: TreeNode, depth: number): void => {
    for (const child of node.children) {
      if (!child.children.length || !open.has(child.key)) continue;
      const members = shownNodes(child, open)
        .map((member) => shown.get(member)!)
        .filter(Boolean);
      frames.push({ node: child, members, depth });
      visit(child, depth + 1);
    }
  };
  visit(root, 0);
  return frames;
}
