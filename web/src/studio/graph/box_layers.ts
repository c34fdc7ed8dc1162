// Which layer's picture each box of the graph shows: an item's own, of a folded box that of what it returns.
import type { PlacedBox } from "../../graph/layout/placement";
import type { Payload } from "../../graph/payload";

/** The layers whose pictures the boxes show. */
export class BoxLayers {
  readonly leaves: ReadonlySet<number>; // appearances of boxes that have a picture somewhere
  private readonly firstItems = new Map<string, number>();

  constructor(
    private readonly data: Payload,
    private readonly layers: readonly string[], // of each item; "" for none
    private readonly resultOf: (module: string) => string | undefined, // the layer that has what a module returned
  ) {
    layers.forEach((layer, item) => {
      if (layer && !this.firstItems.has(layer)) this.firstItems.set(layer, item);
    });
    this.leaves = this.picturedLeaves();
  }

  /** The layer that a folded box or an item shows; "" for none. */
  layerOf({ view, firstItem, address }: PlacedBox): string {
    if (view.composed) return "";
    if (!view.fullPlan) return this.ownLayer(firstItem);
    const last = this.lastLayer(firstItem, view.fullPlan.size);
    return last && view.fullPlan.sort !== "pill" ? (this.resultOf(address) ?? last) : "";
  }

  // Of several items of a layer, as a linear and its activation, the first shows it.
  private ownLayer(item: number): string {
    const layer = this.layers[item] ?? "";
    return this.firstItems.get(layer) === item ? layer : "";
  }

  private lastLayer(first: number, size: number): string {
    for (let item = first + size - 1; item >= first; item--) if (this.layers[item]) return this.layers[item];
    return "";
  }

  // Equal boxes share a plan, so each plan is visited once, wherever it stands first.
  private picturedLeaves(): Set<number> {
    const [leaves, visited] = [new Set<number>(), new Set<number>([this.data.root])];
    const waiting: [plan: number, first: number][] = [[this.data.root, 0]];
    while (waiting.length) {
      const [number, start] = waiting.pop()!;
      const plan = this.data.plans[number];
      plan.parts.forEach((part, n) => {
        const item = start + plan.first[n];
        const inner = part.plan < 0 ? null : this.data.plans[part.plan];
        const layer = inner ? inner.sort !== "pill" && this.lastLayer(item, inner.size) : this.ownLayer(item);
        if (layer) leaves.add(part.leaf);
        if (inner && !visited.has(part.plan)) waiting.push([part.plan, item]);
        if (inner) visited.add(part.plan);
      });
    }
    return leaves;
  }
}
