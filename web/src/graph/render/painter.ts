// SVG elements for one box, one frame or the edges in a frame. The same marks as in src/torcheer/drawing/writers/svg.py: plain
// attributes carry the light colours, classes let a dark page override them.
import { Carries, type Data, type Theme } from "../payload";
import { arrowPath, linePath, number } from "./edge_paths";
import type { View } from "../layout/view_tree";

const SVG = "http://www.w3.org/2000/svg";
const [TITLE, NOTE] = [11.5, 10]; // font sizes, as in faces.py
const TITLE_AT = [15, 14]; // the first base line in a frame, and how far apart they are

// What XML cannot carry, so that a saved drawing can be read again.
const UNPRINTABLE = /[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g; // prettier-ignore

export interface Paint {
  fill: string;
  ink: string;
}

export interface Wanted {
  routes: Set<number>;
  boxes: Set<number>;
}

export type EdgeKind = "edge" | "still" | "loop" | "gradient" | "kept";
const DASHES: Partial<Record<EdgeKind, string>> = { still: "4 3", kept: "1.5 2.5" };

type Attributes = Record<string, string | number | undefined>;

/** An SVG element with attributes. */
export function element(name: string, attributes: Attributes = {}, text = ""): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) {
    const value = attributes[key];
    if (value !== undefined) made.setAttribute(key, String(value));
  }
  if (text) made.textContent = text.replace(UNPRINTABLE, "\ufffd");
  return made;
}

export function translate(x: number, y: number): string {
  return `translate(${number(x)},${number(y)})`;
}

/** Parse what Python wrote and escaped, once for each distinct box. */
export class Painter {
  private templates = new Map<string, SVGElement>();
  readonly theme: Theme;

  constructor(readonly data: Data) {
    this.theme = data.colours.light;
  }

  /** A box without an inside, from its top left corner. */
  leaf(leaf: number, down: boolean, paint: Paint | null): SVGElement {
    const made = this.template(leaf, down).cloneNode(true) as SVGElement;
    if (paint) repaint(made, paint);
    return made;
  }

  /** The outline of a box, for drawings of so many that nobody can read them. */
  outline(leaf: number, down: boolean): SVGElement {
    return mainRect(this.template(leaf, down));
  }

  private template(leaf: number, down: boolean): SVGElement {
    const key = `${leaf} ${down}`;
    let made = this.templates.get(key);
    if (!made) {
      const { svg } = this.data.leaves[leaf];
      made = element("g", { class: "leaf" });
      made.innerHTML = svg[down ? 0 : svg.length - 1];
      this.templates.set(key, made);
    }
    return made;
  }

  /** The border and title of an open box, from its top left corner. */
  frame(view: View): SVGElement {
    const { theme } = this;
    const made = element("g", { class: "open" });
    const size = { width: number(view.box.width), height: number(view.box.height), rx: 6 };
    if (view.mode === "one") {
      for (const n of [6, 3]) {
        made.append(element("rect", { class: "sheet", x: n, y: n, ...size, fill: theme.paper, stroke: theme.frame }));
      }
      made.append(element("rect", { class: "paper", ...size, fill: theme.paper }));
    }
    const tint = { fill: theme.tint, "fill-opacity": theme.tint_opacity, stroke: theme.frame };
    const dashes = isLoose(view) ? "4 3" : undefined;
    made.append(element("rect", { class: "frame", ...size, ...tint, "stroke-dasharray": dashes }));
    view.words?.lines.forEach((line, count) => {
      for (const [x, text, tone] of line) made.append(this.text(x, TITLE_AT[0] + count * TITLE_AT[1], text, TITLE, tone));
    });
    return made;
  }

  /** The lines between the boxes in a frame, and the notes at their ends; `wanted` chooses among routes and boxes. */
  edges(view: View, down: boolean, wanted: Wanted | null, notes: boolean): SVGElement {
    const made = element("g", { class: "edges" });
    const lines: Partial<Record<EdgeKind, string>> = {};
    const heads: Partial<Record<EdgeKind, Set<string>>> = {}; // gradients that meet arrive as one
    const { layout, flows } = view.plan!;
    view.composed!.paths.forEach((path, n) => {
      if (path.length < 2 || (wanted && !wanted.routes.has(n))) return;
      const kind = edgeKind(this.data, layout.routes[n].back, flows[n]);
      const { source, target } = layout.routes[n];
      const inner = (kind === "gradient" ? source : target) - layout.entries;
      let points = kind === "gradient" ? [...path].reverse() : path;
      if (inner >= 0 && inner < layout.children && !view.inside[inner].composed) {
        let head: string;
        [head, points] = arrowPath(points);
        (heads[kind] ??= new Set()).add(head);
      }
      lines[kind] = (lines[kind] ?? "") + linePath(points);
    });
    for (const [kind, d] of Object.entries(lines) as [EdgeKind, string][]) {
      const stroke = { stroke: this.line(kind), "stroke-width": 1.2, "stroke-dasharray": DASHES[kind] };
      made.append(element("path", { class: kind, d, fill: "none", ...stroke }));
    }
    for (const [kind, found] of Object.entries(heads) as [EdgeKind, Set<string>][]) {
      made.append(element("path", { class: `head-${kind}`, d: [...found].join(""), fill: this.line(kind) }));
    }
    if (notes) this.notes(view, down, wanted, made);
    return made;
  }

  /** Shapes where results leave, names where arguments enter. */
  private notes(view: View, down: boolean, wanted: Wanted | null, made: SVGElement): void {
    const { places, entries, exits } = view.composed!;
    view.inside.forEach((inner, n) => {
      if (inner.composed || (wanted && !wanted.boxes.has(n))) return;
      const leaf = this.data.leaves[inner.part.leaf];
      const [x, y] = places[n];
      const { width, height } = inner.box;
      exits[n].forEach((place, exit) => {
        const text = leaf.exits[exit];
        const [left, top] = down ? [x + place + 5, y + height + 12] : [x + width + 4, y + place - 4];
        if (text) made.append(this.text(left, top, text, NOTE, "soft"));
      });
      entries[n].forEach((place, entry) => {
        const text = leaf.entries[entry];
        if (!text || place < 0) return;
        const [left, top] = down ? [x + place + 5, y - 5] : [x - 9, y + place - 4];
        const note = this.text(left, top, text, NOTE, "soft");
        if (!down) note.setAttribute("text-anchor", "end");
        made.append(note);
      });
    });
  }

  text(x: number, y: number, text: string, size: number, tone: string): SVGElement {
    const soft = tone === "soft";
    const weight = tone === "strong" ? 600 : undefined;
    const fill = soft ? this.theme.soft : this.theme.ink;
    const where = { class: soft ? "soft" : "ink", x: number(x), y: number(y), "font-size": number(size) };
    return element("text", { ...where, "font-weight": weight, fill }, text);
  }

  private line(kind: EdgeKind): string {
    const { line, faint, loop, gradient, kept } = this.theme;
    return { edge: line, still: faint, loop, gradient, kept }[kind];
  }
}

export function edgeKind(data: Data, back: boolean, flows: number): EdgeKind {
  if (flows === Carries.gradient) return "gradient";
  if (flows === Carries.kept) return "kept";
  return back ? "loop" : flows || !data.flowing ? "edge" : "still";
}

/** A frame around things that belong together, but are no module. */
function isLoose(view: View): boolean {
  return view.plan!.sort === "pill" || view.plan!.sort === "stack";
}

function mainRect(leaf: SVGElement): SVGElement {
  return leaf.querySelector<SVGElement>("rect:not(.sheet):not(.badge)")!;
}

/** An overlay's colours instead of the family's. */
function repaint(leaf: SVGElement, { fill, ink }: Paint): void {
  mainRect(leaf).style.fill = fill;
  leaf.querySelector("[class^='b-']")?.remove();
  for (const text of leaf.querySelectorAll<SVGElement>("text")) text.style.fill = ink;
  for (const mark of leaf.querySelectorAll<SVGElement>(".more, .badge")) mark.style.stroke = ink;
}
