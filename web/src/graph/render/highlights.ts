// Light around the box that is pointed at or selected, along its tensors, and around what a search found.
import { visible, type App } from "../app";
import { linePath } from "./edge_paths";
import type { Placed } from "../layout/placement";
import { element, translate } from "./painter";
import { trace } from "../layout/edge_trace";

const MOST_HITS = 500;

export function halos(app: App): void {
  const draw = (): void => {
    const chosen = app.byPath.get(app.selected);
    const { pointed } = app;
    const parts: SVGElement[] = [];
    for (const box of hitBoxes(app)) parts.push(ring(box, "hit"));
    if (pointed?.parent) {
      const { segments, before, after } = trace(pointed);
      for (const [frame, route] of segments) parts.push(line(frame, route));
      for (const box of [...before, ...after]) parts.push(ring(box, "near"));
      for (const box of sharing(app, pointed)) parts.push(ring(box, "shared"));
      if (pointed !== chosen) parts.push(ring(pointed, "pointed"));
    }
    if (chosen?.parent) parts.push(ring(chosen, "chosen"));
    app.stage.over.replaceChildren(...parts);
  };
  for (const news of ["selection", "hover", "layout"] as const) app.on(news, draw);
}

/** The other boxes with the same weights. */
function sharing(app: App, box: Placed): Placed[] {
  const { badge } = app.data.leaves[box.view.part.leaf] ?? {};
  if (!badge || box.view.composed) return [];
  return app.boxes.filter((other) => !other.view.composed && app.data.leaves[other.view.part.leaf].badge === badge);
}

/** What a search found, or the folded boxes that hide it. */
function hitBoxes(app: App): Set<Placed> {
  const found = new Set<Placed>();
  for (const hit of app.hits.slice(0, MOST_HITS)) {
    const path = visible(app.byPath, hit);
    const box = app.byPath.get(path);
    if (box?.parent && (path === hit || !box.view.composed)) found.add(box);
  }
  return found;
}

function ring({ x, y, view }: Placed, kind: string): SVGElement {
  const { width, height } = view.box;
  const size = { x: -2.5, y: -2.5, width: width + 5, height: height + 5, rx: view.composed ? 8 : 7 };
  return element("rect", { class: `ring ${kind}`, transform: translate(x, y), ...size });
}

function line({ x, y, view }: Placed, route: number): SVGElement {
  const path = view.composed!.paths[route];
  const d = path.length > 1 ? linePath(path) : "";
  return element("path", { class: "ray", transform: translate(x, y), d });
}
