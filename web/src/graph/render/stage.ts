// The drawing on the screen. Only what is near the window is in the document, and where there are more boxes than
// anyone can read they are plain rectangles: a page with 100,000 boxes moves like one with 100.
import { stillness, type Camera } from "../input/camera";
import { Coarse } from "./rectangle_layer";
import type { Placed } from "../layout/placement";
import { contains, grown, touches, type Rect } from "../layout/rect";
import { element, translate, type Paint, type Painter, type Wanted } from "./painter";

const READABLE = 1200; // boxes that are drawn in full
const LINES = 6000; // edges that are drawn at all
const WHOLE = 600; // edges of a frame that are drawn without asking which are near
const MOVING = 300; // boxes that move to their new place
const MOVE_MS = 180;

export interface Shown {
  boxes: Placed[]; // the whole first
  down: boolean;
  paint: (box: Placed) => Paint | null;
  painted: string; // another text where the paint is another
}

interface Mounted {
  key: string;
  element: SVGElement;
  x: number;
  y: number;
}

export class Stage {
  readonly svg = element("svg", { class: "drawing" });
  readonly over = element("g", { class: "over" }); // for highlights
  readonly coarse: Coarse;
  private world = element("g");
  private layers = { frames: element("g"), edges: element("g"), leaves: element("g") };
  private mounted = new Map<string, Mounted>();
  private near: Rect | null = null;
  private shown: Shown | null = null;

  constructor(
    private readonly painter: Painter,
    private readonly camera: Camera,
    private readonly describe: (box: Placed) => string,
  ) {
    this.world.append(this.layers.frames, this.layers.edges, this.layers.leaves, this.over);
    this.svg.append(this.world);
    this.coarse = new Coarse(camera, this.svg);
  }

  /** Show these boxes; those that were there before move to their new place, seen from a camera that moved too. */
  show(shown: Shown, moved: [number, number] | null): void {
    const before = this.mounted;
    this.shown = shown;
    this.near = null;
    this.look();
    if (moved && !stillness() && this.mounted.size <= MOVING) this.move(before, moved);
  }

  /** The camera moved. */
  look(): void {
    const { x, y, k } = this.camera;
    this.world.setAttribute("transform", `translate(${x},${y}) scale(${k})`);
    const view = this.camera.view();
    if (!this.shown) return;
    if (!this.near || !contains(this.near, view) || view.width * 3 < this.near.width) {
      this.near = grown(view, 0.3);
      this.mount(this.near, this.shown);
    }
    this.coarse.draw(view.width * k, view.height * k);
  }

  private mount(near: Rect, shown: Shown): void {
    const [frames, leaves] = collect(shown.boxes[0], near);
    const plain = leaves.length > READABLE;
    const routes = frames.reduce((sum, { view }) => sum + view.plan!.layout.routes.length, 0);
    const mounted = new Map<string, Mounted>();
    const put = (layer: string, box: Placed, key: string, make: () => SVGElement): SVGElement => {
      const name = `${layer} ${box.path}`;
      const before = key ? this.mounted.get(name) : undefined;
      const made = before?.key === key ? before.element : make();
      if (before?.element !== made || before.x !== box.x || before.y !== box.y) {
        made.setAttribute("transform", translate(box.x, box.y));
      }
      mounted.set(name, { key, element: made, x: box.x, y: box.y });
      return made;
    };
    const framed = frames.filter((box) => box.parent);
    this.layers.frames.replaceChildren(
      ...framed.map((box) => put("frame", box, `${box.view.id} ${shown.down}`, () => this.frame(box))),
    );
    this.layers.edges.replaceChildren(
      ...frames.flatMap((box) => {
        const { length } = box.view.plan!.layout.routes;
        const some = length > WHOLE && !contains(near, rectOf(box)) ? nearParts(box, near) : null;
        if (routes > LINES && (some ? some.routes.size : length) > LINES / 2) return [];
        const key = some ? "" : `${box.view.id} ${shown.down} ${plain}`;
        return [put("edges", box, key, () => this.painter.edges(box.view, shown.down, some, !plain))];
      }),
    );
    const full = plain ? [] : leaves;
    this.layers.leaves.replaceChildren(
      ...full.map((box) => put("leaf", box, `${box.view.id} ${shown.down} ${shown.painted}`, () => this.leaf(box))),
    );
    this.coarse.spots = (plain ? leaves : []).map((box) => {
      const like = this.painter.outline(box.view.part.leaf, shown.down);
      return { box, like, fill: shown.paint(box)?.fill ?? "" };
    });
    this.mounted = mounted;
  }

  private leaf(box: Placed): SVGElement {
    const made = this.painter.leaf(box.view.part.leaf, this.shown!.down, this.shown!.paint(box));
    return this.named(made, box);
  }

  private frame(box: Placed): SVGElement {
    return this.named(this.painter.frame(box.view), box);
  }

  private named(made: SVGElement, box: Placed): SVGElement {
    made.dataset.path = box.path;
    made.id = `box-${box.path}`;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", String(box.depth));
    made.setAttribute("aria-label", this.describe(box));
    if (box.view.whole) made.setAttribute("aria-expanded", String(box.view.composed !== null));
    return made;
  }

  private move(before: Map<string, Mounted>, [right, down]: [number, number]): void {
    const timing = { duration: MOVE_MS, easing: "ease-out" };
    for (const [name, { element: made, x, y }] of this.mounted) {
      const was = before.get(name);
      if (!was || (was.element !== made && name.startsWith("edges"))) {
        made.animate([{ opacity: 0 }, { opacity: 1 }], timing);
      } else {
        const [left, top] = [was.x + right, was.y + down];
        if (Math.abs(left - x) + Math.abs(top - y) < 0.5) continue;
        const places = [[left, top], [x, y]].map(([a, b]) => ({ transform: `translate(${a}px,${b}px)` })); // prettier-ignore
        made.animate(places, timing);
      }
    }
  }
}

export function rectOf({ x, y, view }: Placed): Rect {
  return { x, y, width: view.box.width, height: view.box.height };
}

/** Frames and leaves near the window, frames before those inside them. */
function collect(root: Placed, near: Rect): [Placed[], Placed[]] {
  const [frames, leaves]: [Placed[], Placed[]] = [[], []];
  const visit = (box: Placed): void => {
    if (!touches(rectOf(box), near)) return;
    if (!box.view.composed) leaves.push(box);
    else {
      frames.push(box);
      box.inside.forEach(visit);
    }
  };
  visit(root);
  return [frames, leaves];
}

function nearParts({ x, y, view, inside }: Placed, near: Rect): Wanted {
  const boxes = new Set(inside.filter((box) => touches(rectOf(box), near)).map((box) => box.position));
  const routes = new Set<number>();
  view.composed!.paths.forEach((path, route) => {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const [a, b] of path) {
      if (a < left) left = a;
      if (a > right) right = a;
      if (b < top) top = b;
      if (b > bottom) bottom = b;
    }
    if (touches({ x: x + left, y: y + top, width: right - left, height: bottom - top }, near)) routes.add(route);
  });
  return { routes, boxes };
}
