// Create SVG elements for a box, a frame or the edges in a frame. The same marks as in
// src/torcheer/drawing/writers/svg.py: attributes carry the light colours, classes let a dark page override them.
import { EdgeFlow, type Payload, type Theme } from "../payload";
import { arrowPath, linePath, formatNumber } from "./edge_paths";
import type { Rect } from "../layout/rect";
import type { BoxView } from "../layout/view_tree";

const SVG = "http://www.w3.org/2000/svg";
const [TITLE_SIZE, NOTE_SIZE] = [11.5, 10]; // font sizes, as in faces.py
const TITLE_BASELINE = [15, 14]; // first base line of a title in its frame, and the line height

// Characters that XML cannot carry; replaced so that a saved drawing can be read again.
const UNPRINTABLE = /[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g; // prettier-ignore

export interface Paint {
  fill: string;
  ink: string;
}

export interface EdgeFilter {
  routes: Set<number>;
  boxes: Set<number>;
}

export type EdgeKind = "edge" | "still" | "loop" | "gradient" | "kept";
const DASHES: Partial<Record<EdgeKind, string>> = { still: "4 3", kept: "1.5 2.5" };

type Attributes = Record<string, string | number | undefined>;

/** An SVG element with attributes. */
export function element(name: string, attributes: Attributes = {}, text = ""): SVGElement {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) {
    const value = attributes[key];
    if (value !== undefined) node.setAttribute(key, String(value));
  }
  if (text) node.textContent = text.replace(UNPRINTABLE, "\ufffd");
  return node;
}

export function translate(x: number, y: number): string {
  return `translate(${formatNumber(x)},${formatNumber(y)})`;
}

/** Parses the SVG that Python wrote and escaped, once per distinct box. */
export class Painter {
  private templates = new Map<string, SVGElement>();
  readonly theme: Theme;

  constructor(readonly data: Payload) {
    this.theme = data.colours.light;
  }

  /** A folded box or item, relative to its top left corner. */
  leaf(leaf: number, down: boolean, paint: Paint | null): SVGElement {
    const group = this.template(leaf, down).cloneNode(true) as SVGElement;
    if (paint) repaint(group, paint);
    return group;
  }

  /** The outline of a box, for drawings with too many boxes to read. */
  outline(leaf: number, down: boolean): SVGElement {
    return mainRect(this.template(leaf, down));
  }

  /** Parse the boxes anew: their sizes have changed. */
  clearTemplates(): void {
    this.templates.clear();
  }

  /** Where a box has space for a picture, relative to its top left corner; null where it has none. */
  pictureArea(leaf: number, down: boolean): Rect | null {
    const space = this.data.leaves[leaf]?.pictureSpace;
    if (!space) return null;
    const [width, height] = ["width", "height"].map((name) => Number(this.outline(leaf, down).getAttribute(name)));
    const [left, below] = [10, 6];
    return { x: left, y: height - space, width: width - left - 8, height: space - below };
  }

  private template(leaf: number, down: boolean): SVGElement {
    const key = `${leaf} ${down}`;
    let group = this.templates.get(key);
    if (!group) {
      const { svg } = this.data.leaves[leaf];
      group = element("g", { class: "leaf" });
      group.innerHTML = svg[down ? 0 : svg.length - 1];
      growLeaf(group, this.data.leaves[leaf].pictureSpace ?? 0);
      this.templates.set(key, group);
    }
    return group;
  }

  /** The border and title of an open box, relative to its top left corner. */
  frame(view: BoxView): SVGElement {
    const { theme } = this;
    const group = element("g", { class: "open" });
    const size = { width: formatNumber(view.box.width), height: formatNumber(view.box.height), rx: 6 };
    if (view.mode === "one") {
      for (const n of [6, 3]) {
        group.append(element("rect", { class: "sheet", x: n, y: n, ...size, fill: theme.paper, stroke: theme.frame }));
      }
      group.append(element("rect", { class: "paper", ...size, fill: theme.paper }));
    }
    const tint = { fill: theme.tint, "fill-opacity": theme.tint_opacity, stroke: theme.frame };
    const dashes = isDashed(view) ? "4 3" : undefined;
    group.append(element("rect", { class: "frame", ...size, ...tint, "stroke-dasharray": dashes }));
    view.title?.lines.forEach((line, count) => {
      for (const [x, text, tone] of line)
        group.append(this.text(x, TITLE_BASELINE[0] + count * TITLE_BASELINE[1], text, TITLE_SIZE, tone));
    });
    return group;
  }

  /** The edges between the boxes in a frame, and the notes at their ends; `filter` selects routes and boxes. */
  edges(view: BoxView, down: boolean, filter: EdgeFilter | null, notes: boolean): SVGElement {
    const group = element("g", { class: "edges" });
    const lines: Partial<Record<EdgeKind, string>> = {};
    const heads: Partial<Record<EdgeKind, Set<string>>> = {}; // gradients that merge share one arrow head
    const { layout, flows } = view.plan!;
    view.composed!.paths.forEach((path, n) => {
      if (path.length < 2 || (filter && !filter.routes.has(n))) return;
      const kind = edgeKind(this.data, layout.routes[n].back, flows[n]);
      const { source, target } = layout.routes[n];
      const childIndex = (kind === "gradient" ? source : target) - layout.entries;
      let points = kind === "gradient" ? [...path].reverse() : path;
      if (childIndex >= 0 && childIndex < layout.children && !view.children[childIndex].composed) {
        let head: string;
        [head, points] = arrowPath(points);
        (heads[kind] ??= new Set()).add(head);
      }
      lines[kind] = (lines[kind] ?? "") + linePath(points);
    });
    for (const [kind, d] of Object.entries(lines) as [EdgeKind, string][]) {
      const stroke = { stroke: this.line(kind), "stroke-width": 1.2, "stroke-dasharray": DASHES[kind] };
      group.append(element("path", { class: kind, d, fill: "none", ...stroke }));
    }
    for (const [kind, headPaths] of Object.entries(heads) as [EdgeKind, Set<string>][]) {
      group.append(element("path", { class: `head-${kind}`, d: [...headPaths].join(""), fill: this.line(kind) }));
    }
    if (notes) this.notes(view, down, filter, group);
    return group;
  }

  /** Shapes at exits, names at entries. */
  private notes(view: BoxView, down: boolean, filter: EdgeFilter | null, group: SVGElement): void {
    const { places, entries, exits } = view.composed!;
    view.children.forEach((child, n) => {
      if (child.composed || (filter && !filter.boxes.has(n))) return;
      const leaf = this.data.leaves[child.part.leaf];
      const [x, y] = places[n];
      const { width, height } = child.box;
      exits[n].forEach((position, exit) => {
        const text = leaf.exits[exit];
        const [left, top] = down ? [x + position + 5, y + height + 12] : [x + width + 4, y + position - 4];
        if (text) group.append(this.text(left, top, text, NOTE_SIZE, "soft"));
      });
      entries[n].forEach((position, entry) => {
        const text = leaf.entries[entry];
        if (!text || position < 0) return;
        const [left, top] = down ? [x + position + 5, y - 5] : [x - 9, y + position - 4];
        const note = this.text(left, top, text, NOTE_SIZE, "soft");
        if (!down) note.setAttribute("text-anchor", "end");
        group.append(note);
      });
    });
  }

  text(x: number, y: number, text: string, size: number, tone: string): SVGElement {
    const soft = tone === "soft";
    const weight = tone === "strong" ? 600 : undefined;
    const fill = soft ? this.theme.soft : this.theme.ink;
    const attributes = {
      class: soft ? "soft" : "ink",
      x: formatNumber(x),
      y: formatNumber(y),
      "font-size": formatNumber(size),
    };
    return element("text", { ...attributes, "font-weight": weight, fill }, text);
  }

  private line(kind: EdgeKind): string {
    const { line, faint, loop, gradient, kept } = this.theme;
    return { edge: line, still: faint, loop, gradient, kept }[kind];
  }
}

export function edgeKind(data: Payload, back: boolean, flows: number): EdgeKind {
  if (flows === EdgeFlow.gradient) return "gradient";
  if (flows === EdgeFlow.kept) return "kept";
  return back ? "loop" : flows || !data.flowing ? "edge" : "still";
}

/** Whether a frame groups things that are not a module. */
function isDashed(view: BoxView): boolean {
  return view.plan!.sort === "pill" || view.plan!.sort === "stack";
}

/** Make a box higher: its sheets, and the strip in its family's colour, which ends with rounded corners. */
function growLeaf(leaf: SVGElement, space: number): void {
  if (!space) return;
  for (const rect of leaf.querySelectorAll("rect:not(.badge)"))
    rect.setAttribute("height", formatNumber(Number(rect.getAttribute("height")) + space));
  const strip = leaf.querySelector("[class^='b-']");
  const lower = (_: string, first: string, middle: string, second: string): string =>
    `V${formatNumber(Number(first) + space)}${middle}${formatNumber(Number(second) + space)}V4`;
  strip?.setAttribute("d", strip.getAttribute("d")!.replace(/V([\d.]+)(H4A3.5 3.5 0 0 1 0.5 )([\d.]+)V4/, lower));
}

function mainRect(leaf: SVGElement): SVGElement {
  return leaf.querySelector<SVGElement>("rect:not(.sheet):not(.badge)")!;
}

/** Apply an overlay's colours instead of the family's. */
function repaint(leaf: SVGElement, { fill, ink }: Paint): void {
  mainRect(leaf).style.fill = fill;
  leaf.querySelector("[class^='b-']")?.remove();
  for (const text of leaf.querySelectorAll<SVGElement>("text")) text.style.fill = ink;
  for (const mark of leaf.querySelectorAll<SVGElement>(".more, .badge")) mark.style.stroke = ink;
}
