// What the colours and marks mean: only those that the drawing shows now.
import type { App } from "../app";
import { rampAt } from "../render/colour_scale";
import { h } from "../dom";
import { edgeKind, element } from "../render/painter";

export interface Entry {
  swatch: SVGElement; // 16 by 12
  words: string;
}

export function legend(app: App): HTMLElement {
  const made = h("ul", { class: "legend", "aria-label": "Legend" });
  const draw = (): void => {
    made.replaceChildren(
      ...entries(app).map(({ swatch, words }) => {
        const picture = element("svg", { width: 17, height: 13, viewBox: "-0.5 -0.5 17 13", "aria-hidden": "true" });
        picture.append(swatch);
        return h("li", {}, picture, words);
      }),
    );
  };
  app.on("layout", draw);
  return made;
}

export function entries(app: App): Entry[] {
  const seen = marks(app);
  const { data, colouring } = app;
  const found: Entry[] = [];
  if (colouring) {
    const [low, high] = colouring.range.map((power) => colouring.tell(10 ** power));
    const strange = app.boxes.some((box) => !box.view.composed && !Number.isFinite(colouring.value(box) ?? 0));
    if (strange) {
      const swatch = element("rect", { x: 0.5, y: 0.5, width: 15, height: 11, rx: 2, fill: data.colours.strange });
      found.push({ swatch, words: "NaN or infinite" });
    }
    found.push({ swatch: strip(data.colours.ramp), words: `${data.colour_names[colouring.way]}: ${low} – ${high}` });
  }
  for (const [mark, [entry]] of Object.entries(data.legend)) {
    if (!entry || !seen.has(mark) || (mark === "edge" && !seen.has("still") && !seen.has("gradient"))) continue;
    const swatch = element("g");
    swatch.innerHTML = entry[0]; // Python's own, nothing of the model is in it
    found.push({ swatch, words: entry[1] });
  }
  return found;
}

function marks(app: App): Set<string> {
  const seen = new Set<string>();
  const known = new Set<number>();
  for (const box of app.boxes) {
    const { view } = box;
    if (view.mode === "one") seen.add("stack");
    const painted = app.colouring && !view.composed && app.paint(box);
    if (known.has(view.id) && !app.colouring) continue;
    known.add(view.id);
    if (!view.composed) {
      const leaf = app.data.leaves[view.part.leaf];
      for (const mark of leaf.marks) if (!painted || mark !== leaf.family) seen.add(mark);
      continue;
    }
    view.plan!.layout.routes.forEach(({ back }, n) => seen.add(edgeKind(app.data, back, view.plan!.flows[n])));
  }
  return seen;
}

/** The colours from low to high. */
function strip(ramp: string[]): SVGElement {
  const made = element("g");
  for (let n = 0; n < 9; n++) {
    made.append(element("rect", { x: n * 1.75, y: 0.5, width: 2, height: 11, fill: rampAt(ramp, n / 8).fill }));
  }
  return made;
}
