// The tree that the 3D view folds: modules, runs of equal modules (×N), and layers as its leaves.
import type { ModuleNode, Net, PlacedLayer } from "../../messages";

const MOST_CHILDREN = 120; // of a node; more are folded into ranges
const RANGES = 40; // that they are folded into

/** A module, a run of equal modules, or a layer. */
export interface TreeNode {
  key: string; // unique: the module's path, the run's first path and "×N", the layer's name
  sort: "module" | "run" | "layer";
  title: string; // relative to the module around it
  kind: string; // the module's type
  count: number; // of a run: how many modules; else 1
  parent: TreeNode | null;
  children: TreeNode[]; // in the order in which they ran
  face: PlacedLayer | null; // the layer whose values it shows while it is closed
  hasOutput: boolean; // whether these are what it returned, not only those of its last layer
}

/** The tree of a network. */
export interface SceneTree {
  root: TreeNode;
  nodes: Map<string, TreeNode>; // by key
  leaves: Map<string, TreeNode>; // by the layer's name
}

/** Whether a network has something to fold: modules, and no layer with a place of its own. */
export function canFold(net: Net): boolean {
  return net.modules.length > 0 && net.layers.every(({ layer }) => layer.place === null);
}

/** Build the tree; modules without layers are left out. */
export function buildTree(net: Net): SceneTree {
  const builder = new TreeBuilder(net);
  return builder.build();
}

/** Every node below, the node itself first. */
export function* walk(node: TreeNode): Generator<TreeNode> {
  yield node;
  for (const child of node.children) yield* walk(child);
}

/** The last module or layer of a run, whose values it shows; any other node itself. */
export function lastMember(node: TreeNode): TreeNode {
  return node.sort === "run" && node.children.length ? lastMember(node.children[node.children.length - 1]) : node;
}

/** The nodes around a node, the root first, without the node itself. */
export function pathTo(node: TreeNode): TreeNode[] {
  return node.parent ? [...pathTo(node.parent), node.parent] : [];
}

class TreeBuilder {
  private readonly modules: Map<string, ModuleNode>;
  private readonly nodes = new Map<string, TreeNode>();
  private readonly leaves = new Map<string, TreeNode>();

  constructor(private readonly net: Net) {
    this.modules = new Map(net.modules.map((module) => [module.path, module]));
  }

  build(): SceneTree {
    const root = this.node("", "module", this.net.name, "", 1, null);
    const open = new Map<string, TreeNode>([["", root]]);
    const around = this.layersInside();
    for (const placed of this.net.layers) {
      this.addLeaf(placed, this.openModule(this.around(this.homeOf(placed), around), open, around));
    }
    for (const node of [...walk(root)].reverse()) {
      node.face ??= this.faceOf(node);
      if (node.sort === "module") node.children = this.inRanges(node, this.groupRuns(node));
    }
    return { root, nodes: this.nodes, leaves: this.leaves };
  }

  // How many layers each module holds.
  private layersInside(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const placed of this.net.layers) {
      for (let path = this.homeOf(placed); path; path = this.modules.get(path)?.parent ?? "") {
        counts.set(path, (counts.get(path) ?? 0) + 1);
      }
    }
    return counts;
  }

  // The innermost module that holds a layer; "" for the model. A module's own call is in the module around it.
  private homeOf({ layer }: PlacedLayer): string {
    const name = layer.name.replace(/:\d+$/, "");
    for (let path = name; path; path = path.slice(0, Math.max(0, path.lastIndexOf(".")))) {
      const module = this.modules.get(path);
      if (module) return path === name && !layer.holds ? module.parent : path;
    }
    return "";
  }

  // A module, if it holds several layers, else the nearest one around it that does; "" for the model.
  private around(path: string, counts: Map<string, number>): string {
    while (path && counts.get(path)! < 2) path = this.modules.get(path)?.parent ?? "";
    return path;
  }

  private openModule(path: string, open: Map<string, TreeNode>, around: Map<string, number>): TreeNode {
    const known = open.get(path);
    if (known) return known;
    const module = this.modules.get(path)!;
    const parent = this.openModule(this.around(module.parent, around), open, around);
    const node = this.node(path, "module", relativeName(path, parent.key), module.kind, 1, parent);
    parent.children.push(node);
    open.set(path, node);
    return node;
  }

  private addLeaf(placed: PlacedLayer, parent: TreeNode): void {
    const { name, kind } = placed.layer;
    const isOutput = name === parent.key; // what the module itself returned
    const leaf = this.node(
      isOutput ? `${name} output` : name,
      "layer",
      isOutput ? "output" : relativeName(name, parent.key),
      isOutput ? "" : kind,
      1,
      parent,
    );
    leaf.face = placed;
    parent.children.push(leaf);
    this.leaves.set(name, leaf);
  }

  private node(
    key: string,
    sort: TreeNode["sort"],
    title: string,
    kind: string,
    count: number,
    parent: TreeNode | null,
  ): TreeNode {
    const node: TreeNode = {
      key,
      sort,
      title,
      kind,
      count,
      parent,
      children: [],
      face: null,
      hasOutput: sort === "layer",
    };
    this.nodes.set(key, node);
    return node;
  }

  // Equal siblings that follow each other become one run.
  private groupRuns(parent: TreeNode): TreeNode[] {
    const grouped: TreeNode[] = [];
    for (let n = 0; n < parent.children.length; n++) {
      const members = this.runFrom(parent.children, n);
      if (members.length === parent.children.length && parent.parent !== null) {
        parent.count = members.length; // the module is the run
        return members;
      }
      if (members.length < 2) {
        grouped.push(parent.children[n]);
        continue;
      }
      const [first, last] = [members[0], members[members.length - 1]];
      const run = this.node(
        `${first.key} ×${members.length}`,
        "run",
        runTitle(first.title, last.title),
        first.kind,
        members.length,
        parent,
      );
      run.children = this.inRanges(run, members);
      run.face = this.faceOf(run);
      for (const member of run.children) member.parent = run;
      grouped.push(run);
      n += members.length - 1;
    }
    return grouped;
  }

  // Many children, as those of a long Sequential, are folded into ranges.
  private inRanges(parent: TreeNode, children: TreeNode[]): TreeNode[] {
    if (children.length <= MOST_CHILDREN) return children;
    const size = Math.max(2, Math.ceil(children.length / RANGES));
    const ranges: TreeNode[] = [];
    for (let start = 0; start < children.length; start += size) {
      const members = children.slice(start, start + size);
      if (members.length > 1) ranges.push(this.rangeOf(parent, members));
      else ranges.push(...members);
    }
    return ranges;
  }

  private rangeOf(parent: TreeNode, members: TreeNode[]): TreeNode {
    const [first, last] = [members[0], members[members.length - 1]];
    const isEqual = members.every((member) => likeness(member) === likeness(first));
    const kind = isEqual ? first.kind : `${members.length} layers`;
    const title = runTitle(first.title, last.title);
    const range = this.node(`${first.key} – ${last.key}`, "run", title, kind, isEqual ? members.length : 1, parent);
    range.children = this.inRanges(range, members);
    for (const member of range.children) member.parent = range;
    range.face = this.faceOf(range);
    return range;
  }

  private runFrom(children: TreeNode[], start: number): TreeNode[] {
    if (children.length > MOST_CHILDREN && children[start].sort === "layer") return equalLayers(children, start);
    const repeats = (node: TreeNode): number =>
      node.sort === "module" ? (this.modules.get(node.key)?.repeats ?? 1) : 1;
    const count = repeats(children[start]);
    if (count < 2) return [];
    let end = start + 1;
    while (end < children.length && end < start + count && repeats(children[end]) === 0) end++;
    return children.slice(start, end);
  }

  // What a closed module shows: the layer with its result, else its last layer.
  private faceOf(node: TreeNode): PlacedLayer | null {
    const faces = [...walk(node)].filter(({ sort }) => sort === "layer").map(({ face }) => face!);
    const owner = lastMember(node);
    const output = this.modules.get(owner.key)?.output;
    const flowing = faces.filter(({ layer }) => !layer.relation); // not attention's weights beside it
    const returned = faces.find(({ layer }) => layer.name === output);
    node.hasOutput ||= returned !== undefined;
    return returned ?? flowing[flowing.length - 1] ?? faces[0] ?? null;
  }
}

// Layers of one kind and shape that follow each other.
function equalLayers(children: readonly TreeNode[], start: number): TreeNode[] {
  let end = start;
  while (
    end < children.length &&
    children[end].sort === "layer" &&
    likeness(children[end]) === likeness(children[start])
  )
    end++;
  return children.slice(start, end);
}

function likeness({ sort, kind, count, face }: TreeNode): string {
  return `${sort} ${kind} ${count} ${face?.layer.shape.join() ?? ""}`;
}

// A name without that of the module around it, but for the word before a number: "layer1.0", not "0".
function relativeName(name: string, parent: string): string {
  if (!parent || !name.startsWith(`${parent}.`)) return name;
  const words = name.split(".");
  let first = parent.split(".").length;
  while (first > 0 && /^\d/.test(words[first])) first--;
  return words.slice(first).join(".");
}

// "h.1" to "h.11" is "h.1–11".
function runTitle(first: string, last: string): string {
  const stem = first.slice(0, first.lastIndexOf(".") + 1);
  return last.startsWith(stem) ? `${first}–${last.slice(stem.length)}` : `${first} – ${last}`;
}
