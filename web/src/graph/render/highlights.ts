// Highlights: rings around the hovered or selected box, rays along its tensors, rings around search matches.
import { visiblePath, type App, type BoxFault } from "../app";
import { linePath } from "./edge_paths";
import type { PlacedBox } from "../layout/placement";
import { element, translate } from "./painter";
import { traceEdges } from "../layout/edge_trace";

export const MAX_HITS = 500;

export function attachHighlights(app: App): void {
  const draw = (): void => {
    const selectedBox = app.byPath.get(app.selected);
    const { focusBox } = app;
    const elements: SVGElement[] = [];
    for (const box of hitBoxes(app)) elements.push(makeRing(box, "hit"));
    for (const [box, fault] of faultyBoxes(app)) elements.push(...markFault(box, fault));
    if (focusBox?.parent) {
      const { segments, before, after } = traceEdges(focusBox);
      for (const [frame, route] of segments) elements.push(makeRay(frame, route));
      for (const box of [...before, ...after]) elements.push(makeRing(box, "near"));
      for (const box of boxesSharingWeights(app, focusBox)) elements.push(makeRing(box, "shared"));
      if (focusBox !== selectedBox) elements.push(makeRing(focusBox, "pointed"));
    }
    if (selectedBox?.parent) elements.push(makeRing(selectedBox, "chosen"));
    app.stage.overlay.replaceChildren(...elements);
  };
  for (const event of ["selection", "hover", "layout", "faults"] as const) app.on(event, draw);
}

/** The boxes with something wrong, or the folded ones around them; each with all that is wrong in it. */
function faultyBoxes(app: App): Map<PlacedBox, BoxFault> {
  const faults = new Map<PlacedBox, BoxFault>();
  for (const fault of app.faults) {
    const box = app.byPath.get(visiblePath(app.byPath, fault.path));
    if (!box?.parent) continue;
    const before = faults.get(box);
    const words = new Set([...(before?.text.split(" · ") ?? []), ...fault.text.split(" · ")]);
    const first = fault.first || before?.first || "";
    faults.set(box, { path: box.path, text: [...words].join(" · "), first });
  }
  return faults;
}

function markFault(box: PlacedBox, { text, first }: BoxFault): SVGElement[] {
  const { width } = box.view.box;
  const words = first ? `${first}: ${text}` : text;
  const place = { x: width + 3, y: -5, "text-anchor": "end", "font-size": 10, "font-weight": 600 };
  const note = element("text", { class: "fault", transform: translate(box.x, box.y), ...place }, words);
  return [makeRing(box, first ? "wrong first" : "wrong"), note];
}

/** The other boxes with the same weights. */
function boxesSharingWeights(app: App, box: PlacedBox): PlacedBox[] {
  const { badge } = app.data.leaves[box.view.part.leaf] ?? {};
  if (!badge || box.view.composed) return [];
  return app.boxes.filter((other) => !other.view.composed && app.data.leaves[other.view.part.leaf].badge === badge);
}

/** The search matches, or the folded boxes that contain them. */
function hitBoxes(app: App): Set<PlacedBox> {
  const boxes = new Set<PlacedBox>();
  for (const hit of app.searchHits) {
    const path = visiblePath(app.byPath, hit);
    const box = app.byPath.get(path);
    if (box?.parent && (path === hit || !box.view.composed)) boxes.add(box);
  }
  return boxes;
}

function makeRing({ x, y, view }: PlacedBox, kind: string): SVGElement {
  const { width, height } = view.box;
  const size = { x: -2.5, y: -2.5, width: width + 5, height: height + 5, rx: view.composed ? 8 : 7 };
  return element("rect", { class: `ring ${kind}`, transform: translate(x, y), ...size });
}

function makeRay({ x, y, view }: PlacedBox, route: number): SVGElement {
  const path = view.composed!.paths[route];
  const d = path.length > 1 ? linePath(path) : "";
  return element("path", { class: "ray", transform: translate(x, y), d });
}
