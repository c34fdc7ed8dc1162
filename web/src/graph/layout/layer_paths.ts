// Which layer of the network a box stands for, and which box stands for a layer or module.
import type { Payload } from "../payload";
import { joinAddress, type PlacedBox } from "./placement";

/** A box: its path, and whether it is the module that was asked for. */
interface FoundBox {
  path: string;
  isModule: boolean;
}

/** The layers of a drawing's items. */
export class LayerPaths {
  private readonly firstItems = new Map<string, number>(); // layer -> its first item

  constructor(
    private readonly data: Payload,
    private readonly layers: readonly string[], // of each item; "" for none
  ) {
    layers.forEach((layer, item) => {
      if (layer && !this.firstItems.has(layer)) this.firstItems.set(layer, item);
    });
  }

  /** The layer of an item's box; "" for a box that can be opened, or of an operation between layers. */
  layerOf({ view, firstItem }: PlacedBox): string {
    return view.fullPlan ? "" : (this.layers[firstItem] ?? "");
  }

  /** The layers of everything in a box, each once, in the order in which they ran. */
  layersIn({ view, firstItem }: PlacedBox): string[] {
    const items = this.layers.slice(firstItem, firstItem + (view.fullPlan?.size ?? 1));
    return [...new Set(items)].filter(Boolean);
  }

  /** The path of the box of a layer: of the module that it is, if that has parts; "" if it is not drawn. */
  pathOf(layer: string): string {
    const item = this.firstItems.get(layer);
    return item === undefined ? "" : this.descend(item, layer).path;
  }

  /** The path of an item's box. */
  pathOfItem(item: number): string {
    return this.descend(item, "\0").path; // no module has this name
  }

  /** The path of a module's box; `layer` is one of its layers. */
  pathOfModule(module: string, layer: string): string {
    const item = this.firstItems.get(layer);
    if (item === undefined) return "";
    const box = this.descend(item, module);
    return box.isModule ? box.path : this.pathOf(layer);
  }

  // From the root towards an item, as far as the module of that name, or the item itself.
  private descend(item: number, name: string): FoundBox {
    const module = withoutCall(name);
    let [path, address, first, plan] = ["", "", 0, this.data.plans[this.data.root]];
    for (;;) {
      const index = lastStarting(plan.first, item - first);
      const part = plan.parts[index];
      path = path ? `${path}/${index}` : String(index);
      first += plan.first[index];
      if (part.plan < 0) return { path, isModule: false };
      plan = this.data.plans[part.plan];
      if (plan.sort === "module") {
        address = joinAddress(address, this.nameOf(path));
        if (withoutCall(address) === module) return { path, isModule: true };
      }
    }
  }

  private nameOf(path: string): string {
    const steps = path.split("/").map(Number);
    let plan = this.data.plans[this.data.root];
    for (const step of steps.slice(0, -1)) plan = this.data.plans[plan.parts[step].plan];
    return plan.names[steps[steps.length - 1]];
  }
}

// "block:2.relu:3" is the third call of the relu in the second of the block.
function withoutCall(name: string): string {
  return name.replace(/:\d+(?=\.|$)/g, "");
}

// The index of the last number that is not above `value`.
function lastStarting(firsts: readonly number[], value: number): number {
  let [low, high] = [0, firsts.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (firsts[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
