// The drawing on the screen. Only boxes near the window are in the document, and above MAX_DETAILED_BOXES they are
// plain rectangles: a page with 100,000 boxes moves like one with 100.
import { prefersReducedMotion } from "../../camera/flight";
import type { Camera } from "../input/camera";
import { RectangleLayer } from "./rectangle_layer";
import type { PlacedBox } from "../layout/placement";
import { contains, growRect, touches, type Rect } from "../layout/rect";
import { element, translate, type Paint, type Painter, type EdgeFilter } from "./painter";

const MAX_DETAILED_BOXES = 1200; // maximum number of boxes drawn in detail
const MAX_EDGES = 6000; // maximum number of edges drawn
const MAX_UNFILTERED_EDGES = 600; // edges of a frame up to which all are drawn, near the window or not
const MAX_ANIMATED_BOXES = 300; // maximum number of boxes animated to their new position
const MOVE_MS = 180;

export interface StageContent {
  boxes: PlacedBox[]; // the root first
  down: boolean;
  paint: (box: PlacedBox) => Paint | null;
  paintKey: string; // changes whenever the paint changes
}

interface MountedElement {
  key: string;
  element: SVGElement;
  x: number;
  y: number;
}

export class Stage {
  readonly svg = element("svg", { class: "drawing" });
  readonly pictures = element("g", { class: "pictures" }); // in boxes, by who embeds the drawing
  readonly overlay = element("g", { class: "over" }); // for highlights
  readonly rectangles: RectangleLayer;
  private world = element("g");
  private layers = { frames: element("g"), edges: element("g"), leaves: element("g") };
  private mounted = new Map<string, MountedElement>();
  private loadedArea: Rect | null = null;
  private content: StageContent | null = null;

  constructor(
    private readonly painter: Painter,
    private readonly camera: Camera,
    private readonly describe: (box: PlacedBox) => string,
  ) {
    this.world.append(this.layers.frames, this.layers.edges, this.layers.leaves, this.pictures, this.overlay);
    this.svg.append(this.world);
    this.rectangles = new RectangleLayer(camera, this.svg);
  }

  /** Show these boxes; boxes already mounted animate to their new position, relative to the camera's shift. */
  show(content: StageContent, shift: [number, number] | null): void {
    const previous = this.mounted;
    this.content = content;
    this.loadedArea = null;
    this.update();
    if (shift && !prefersReducedMotion() && this.mounted.size <= MAX_ANIMATED_BOXES) this.animateMoves(previous, shift);
  }

  /** Redraw after a camera move. */
  update(): void {
    const { x, y, k } = this.camera;
    this.world.setAttribute("transform", `translate(${x},${y}) scale(${k})`);
    const view = this.camera.view();
    if (!this.content) return;
    if (!this.loadedArea || !contains(this.loadedArea, view) || view.width * 3 < this.loadedArea.width) {
      this.loadedArea = growRect(view, 0.3);
      this.mount(this.loadedArea, this.content);
    }
    this.rectangles.draw(view.width * k, view.height * k);
  }

  private mount(loadedArea: Rect, content: StageContent): void {
    const [frames, leaves] = collectBoxes(content.boxes[0], loadedArea);
    const isCoarse = leaves.length > MAX_DETAILED_BOXES;
    const routes = frames.reduce((sum, { view }) => sum + view.plan!.layout.routes.length, 0);
    const mounted = new Map<string, MountedElement>();
    const mountNode = (layer: string, box: PlacedBox, key: string, make: () => SVGElement): SVGElement => {
      const name = `${layer} ${box.path}`;
      const previous = key ? this.mounted.get(name) : undefined;
      const node = previous?.key === key ? previous.element : make();
      if (previous?.element !== node || previous.x !== box.x || previous.y !== box.y) {
        node.setAttribute("transform", translate(box.x, box.y));
      }
      mounted.set(name, { key, element: node, x: box.x, y: box.y });
      return node;
    };
    const innerFrames = frames.filter((box) => box.parent);
    this.layers.frames.replaceChildren(
      ...innerFrames.map((box) => mountNode("frame", box, `${box.view.id} ${content.down}`, () => this.frame(box))),
    );
    this.layers.edges.replaceChildren(
      ...frames.flatMap((box) => {
        const { length } = box.view.plan!.layout.routes;
        const filter =
          length > MAX_UNFILTERED_EDGES && !contains(loadedArea, rectOf(box)) ? filterNear(box, loadedArea) : null;
        if (routes > MAX_EDGES && (filter ? filter.routes.size : length) > MAX_EDGES / 2) return [];
        const key = filter ? "" : `${box.view.id} ${content.down} ${isCoarse}`;
        return [mountNode("edges", box, key, () => this.painter.edges(box.view, content.down, filter, !isCoarse))];
      }),
    );
    const detailedLeaves = isCoarse ? [] : leaves;
    this.layers.leaves.replaceChildren(
      ...detailedLeaves.map((box) =>
        mountNode("leaf", box, `${box.view.id} ${content.down} ${content.paintKey}`, () => this.leaf(box)),
      ),
    );
    this.rectangles.rectangles = (isCoarse ? leaves : []).map((box) => {
      const template = this.painter.outline(box.view.part.leaf, content.down);
      return { box, template, fill: content.paint(box)?.fill ?? "" };
    });
    this.mounted = mounted;
  }

  private leaf(box: PlacedBox): SVGElement {
    const node = this.painter.leaf(box.view.part.leaf, this.content!.down, this.content!.paint(box));
    return this.labelElement(node, box);
  }

  private frame(box: PlacedBox): SVGElement {
    return this.labelElement(this.painter.frame(box.view), box);
  }

  private labelElement(node: SVGElement, box: PlacedBox): SVGElement {
    node.dataset.path = box.path;
    node.id = `box-${box.path}`;
    node.setAttribute("role", "treeitem");
    node.setAttribute("aria-level", String(box.depth));
    node.setAttribute("aria-label", this.describe(box));
    if (box.view.fullPlan) node.setAttribute("aria-expanded", String(box.view.composed !== null));
    return node;
  }

  private animateMoves(mountedBefore: Map<string, MountedElement>, [right, down]: [number, number]): void {
    const timing = { duration: MOVE_MS, easing: "ease-out" };
    for (const [name, { element: node, x, y }] of this.mounted) {
      const previous = mountedBefore.get(name);
      if (!previous || (previous.element !== node && name.startsWith("edges"))) {
        node.animate([{ opacity: 0 }, { opacity: 1 }], timing);
      } else {
        const [left, top] = [previous.x + right, previous.y + down];
        if (Math.abs(left - x) + Math.abs(top - y) < 0.5) continue;
        const places = [[left, top], [x, y]].map(([a, b]) => ({ transform: `translate(${a}px,${b}px)` })); // prettier-ignore
        node.animate(places, timing);
      }
    }
  }
}

export function rectOf({ x, y, view }: PlacedBox): Rect {
  return { x, y, width: view.box.width, height: view.box.height };
}

/** Frames and leaves near the window, outer frames before inner ones. */
function collectBoxes(root: PlacedBox, near: Rect): [PlacedBox[], PlacedBox[]] {
  const [frames, leaves]: [PlacedBox[], PlacedBox[]] = [[], []];
  const visit = (box: PlacedBox): void => {
    if (!touches(rectOf(box), near)) return;
    if (!box.view.composed) leaves.push(box);
    else {
      frames.push(box);
      box.children.forEach(visit);
    }
  };
  visit(root);
  return [frames, leaves];
}

function filterNear({ x, y, view, children }: PlacedBox, near: Rect): EdgeFilter {
  const boxes = new Set(children.filter((box) => touches(rectOf(box), near)).map((box) => box.childIndex));
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
