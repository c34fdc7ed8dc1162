// Every drawn box with its position on the page, path, first item and address.
import type { ViewTree, BoxView } from "./view_tree";

export interface PlacedBox {
  view: BoxView;
  path: string; // child indices from the root: "3/0/1"; "" for the root
  x: number;
  y: number;
  firstItem: number; // index of its first item
  address: string; // "layer1.0.conv1"
  depth: number;
  parent: PlacedBox | null;
  childIndex: number; // index among its parent's visible children
  children: PlacedBox[];
}

/** All boxes, parents before children. */
export function placeBoxes(tree: ViewTree): PlacedBox[] {
  const root: PlacedBox = {
    view: tree.root, path: "", x: 0, y: 0, firstItem: 0, address: "", depth: 0, parent: null, childIndex: 0, children: [],
  }; // prettier-ignore
  const boxes: PlacedBox[] = [];
  const stack = [root];
  while (stack.length) {
    const box = stack.pop()!;
    boxes.push(box);
    const { view } = box;
    if (!view.composed) continue;
    const plan = view.plan!;
    const last = view.fullPlan!.parts.length - 1;
    const showsOne = view.mode === "one";
    const path = showsOne ? `${box.path}/${last}/` : box.path && `${box.path}/`;
    const first = box.firstItem + (showsOne ? view.fullPlan!.first[last] : 0);
    const parentAddress = moduleAddress(box);
    box.children = view.children.map((child, n) => ({
      view: child,
      path: path + n,
      x: box.x + view.composed!.places[n][0],
      y: box.y + view.composed!.places[n][1],
      firstItem: first + plan.first[n],
      address: joinAddress(parentAddress, addressStep(child)),
      depth: box.depth + 1,
      parent: box,
      childIndex: n,
      children: [],
    }));
    for (let n = box.children.length - 1; n >= 0; n--) stack.push(box.children[n]);
  }
  return boxes;
}

/** The innermost box at a world point. */
export function boxAt(root: PlacedBox, x: number, y: number): PlacedBox | null {
  let innermost: PlacedBox | null = null;
  for (let box: PlacedBox | undefined = root; box;) {
    box = box.children.find(
      (child) =>
        x >= child.x && y >= child.y && x <= child.x + child.view.box.width && y <= child.y + child.view.box.height,
    );
    innermost = box ?? innermost;
  }
  return innermost;
}

/** The address that names in an open box begin with: stacks and functions are no part of a module's address. */
function moduleAddress(box: PlacedBox): string {
  let module: PlacedBox | null = box;
  while (module && (module.view.plan!.sort === "stack" || module.view.plan!.sort === "function"))
    module = module.parent;
  return module?.address ?? "";
}

/** What a box adds to the address: a stack the name of its last module, a pill nothing. */
function addressStep(view: BoxView): string {
  if (!view.fullPlan || view.fullPlan.sort === "module" || view.fullPlan.sort === "function") return view.name;
  return view.fullPlan.sort === "stack" ? view.fullPlan.names[view.fullPlan.names.length - 1] : "";
}

export function joinAddress(address: string, step: string): string {
  return address && step ? `${address}.${step}` : address || step;
}
