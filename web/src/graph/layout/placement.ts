// Every box that is drawn, with its place on the page, its path, its first item and its address.
import type { Scene, View } from "./view_tree";

export interface Placed {
  view: View;
  path: string; // positions that lead to it: "3/0/1"; "" for the whole
  x: number;
  y: number;
  first: number; // its first item
  address: string; // "layer1.0.conv1"
  depth: number;
  parent: Placed | null;
  position: number; // among what its parent shows
  inside: Placed[];
}

/** All boxes, each before what is in it. */
export function place(scene: Scene): Placed[] {
  const root: Placed = {
    view: scene.root, path: "", x: 0, y: 0, first: 0, address: "", depth: 0, parent: null, position: 0, inside: [],
  }; // prettier-ignore
  const found: Placed[] = [];
  const stack = [root];
  while (stack.length) {
    const here = stack.pop()!;
    found.push(here);
    const { view } = here;
    if (!view.composed) continue;
    const plan = view.plan!;
    const last = view.whole!.parts.length - 1;
    const one = view.mode === "one";
    const path = one ? `${here.path}/${last}/` : here.path && `${here.path}/`;
    const first = here.first + (one ? view.whole!.first[last] : 0);
    const around = plan.sort === "stack" ? (here.parent?.address ?? "") : here.address; // its modules name themselves
    here.inside = view.inside.map((inner, n) => ({
      view: inner,
      path: path + n,
      x: here.x + view.composed!.places[n][0],
      y: here.y + view.composed!.places[n][1],
      first: first + plan.first[n],
      address: join(around, stepOf(inner)),
      depth: here.depth + 1,
      parent: here,
      position: n,
      inside: [],
    }));
    for (let n = here.inside.length - 1; n >= 0; n--) stack.push(here.inside[n]);
  }
  return found;
}

/** The innermost box at a point of the page. */
export function boxAt(root: Placed, x: number, y: number): Placed | null {
  let found: Placed | null = null;
  for (let here: Placed | undefined = root; here; ) {
    here = here.inside.find(
      (inner) =>
        x >= inner.x && y >= inner.y && x <= inner.x + inner.view.box.width && y <= inner.y + inner.view.box.height,
    );
    found = here ?? found;
  }
  return found;
}

/** What a box adds to the address: a stack stands for its last module, a pill for nothing. */
function stepOf(view: View): string {
  if (!view.whole || view.whole.sort === "module") return view.name;
  return view.whole.sort === "stack" ? view.whole.names[view.whole.names.length - 1] : "";
}

export function join(address: string, step: string): string {
  return address && step ? `${address}.${step}` : address || step;
}
