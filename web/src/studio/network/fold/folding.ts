// Which modules of the network are open, where the view is, and what it shows therefore.
import type { Net } from "../../messages";
import { Signal } from "../../signal";
import { pathTo, type SceneTree, type TreeNode } from "./scene_tree";
import { foldNet, initiallyOpen, shownNodes, treeOf, wholeNet, type VisibleNet } from "./visible_net";

/** The state of folding. */
export class Folding {
  readonly visible = new Signal<VisibleNet | null>(null);
  readonly focus = new Signal<TreeNode | null>(null); // the open module that the camera is at; null: everything
  tree: SceneTree | null = null;
  private net: Net | null = null;
  private open: ReadonlySet<string> = new Set();

  /** Show another network, at the depth that fits; one with the same modules keeps what is open. */
  setNet(net: Net | null): void {
    const before = this.tree;
    this.net = net;
    this.tree = treeOf(net);
    const isSame = before && this.tree && [...before.nodes.keys()].join() === [...this.tree.nodes.keys()].join();
    if (!isSame) {
      this.open = this.tree ? initiallyOpen(this.tree) : new Set();
      this.focus.set(null);
    }
    this.update();
  }

  /** The node with this key, or of this layer. */
  find(name: string): TreeNode | undefined {
    return this.tree?.leaves.get(name) ?? this.tree?.nodes.get(name);
  }

  /** Open a module and go there. */
  enter(node: TreeNode): void {
    if (!node.children.length) return;
    this.open = new Set([...this.open, ...pathTo(node).map(({ key }) => key), node.key]);
    this.focus.set(node);
    this.update();
  }

  /** Close a module and go to the one around it. */
  leave(node: TreeNode): void {
    this.open = new Set([...this.open].filter((key) => !this.isWithin(key, node)));
    this.focus.set(node.parent?.parent ? node.parent : null);
    this.update();
  }

  /** Go to an open module, closing what is open in it. */
  goTo(node: TreeNode | null): void {
    const root = this.tree?.root;
    if (!root) return;
    if (!node || node === root) {
      this.open = initiallyOpen(this.tree!);
      this.focus.set(null);
    } else {
      this.open = new Set([...this.open].filter((key) => key === node.key || !this.isWithin(key, node)));
      this.focus.set(node);
    }
    this.update();
  }

  /** Open everything around a node, so that it is shown, and go there. */
  reveal(node: TreeNode): void {
    const around = pathTo(node);
    this.open = new Set([...this.open, ...around.map(({ key }) => key)]);
    const parent = around[around.length - 1];
    this.focus.set(parent && parent.parent ? parent : null);
    this.update();
  }

  /** Names of the layers that are shown inside of a module. */
  membersOf(node: TreeNode | null): string[] {
    const start = node ?? this.tree?.root;
    return start ? shownNodes(start, this.open).flatMap(({ face }) => (face ? [face.layer.name] : [])) : [];
  }

  private isWithin(key: string, node: TreeNode): boolean {
    const found = this.tree?.nodes.get(key);
    return found !== undefined && (found === node || pathTo(found).includes(node));
  }

  private update(): void {
    const { net, tree } = this;
    this.visible.set(net && (tree ? foldNet(net, tree, this.open) : wholeNet(net)));
  }
}
