// The legend: explains only the colours and marks that are visible now.
import type { App } from "../app";
import { legendOf, rampAt } from "../render/quantity_scale";
import { h } from "../dom";
import { edgeKind, element } from "../render/painter";

export interface LegendEntry {
  swatch: SVGElement; // 16 by 12
  text: string;
}

export function legend(app: App): HTMLElement {
  const list = h("ul", { class: "legend", "aria-label": "Legend" });
  const draw = (): void => {
    list.replaceChildren(
      ...legendEntries(app).map(({ swatch, text }) => {
        const svg = element("svg", { width: 17, height: 13, viewBox: "-0.5 -0.5 17 13", "aria-hidden": "true" });
        svg.append(swatch);
        return h("li", {}, svg, text);
      }),
    );
  };
  app.on("layout", draw);
  return list;
}

export function legendEntries(app: App): LegendEntry[] {
  const shownMarks = collectMarks(app);
  const { data, colourScale } = app;
  const entries: LegendEntry[] = [];
  if (colourScale) {
    const [low, high] = colourScale.ends();
    const hasNonFinite = app.boxes.some((box) => !box.view.composed && !Number.isFinite(colourScale.value(box) ?? 0));
    if (hasNonFinite) {
      const swatch = element("rect", { x: 0.5, y: 0.5, width: 15, height: 11, rx: 2, fill: data.colours.strange });
      entries.push({ swatch, text: "NaN or infinite" });
    }
    const name = legendOf(colourScale.quantity, data.time_name);
    if (colourScale.hasRange)
      entries.push({ swatch: rampSwatch(data.colours.ramp), text: `${name}: ${low} – ${high}` });
    else if (!hasNonFinite) entries.push({ swatch: rampSwatch([data.colours.ramp[0]]), text: `${name}: none` });
  }
  for (const [mark, [entry]] of Object.entries(data.legend)) {
    if (!entry || !shownMarks.has(mark) || (mark === "edge" && !shownMarks.has("still") && !shownMarks.has("gradient")))
      continue;
    const swatch = element("g");
    swatch.innerHTML = entry[0]; // written by Python; contains nothing of the model
    entries.push({ swatch, text: entry[1] });
  }
  return entries;
}

function collectMarks(app: App): Set<string> {
  const marks = new Set<string>();
  const visitedViews = new Set<number>();
  for (const box of app.boxes) {
    const { view } = box;
    if (view.mode === "one") marks.add("stack");
    const isPainted = app.colourScale && !view.composed && app.paint(box);
    if (visitedViews.has(view.id) && !app.colourScale) continue;
    visitedViews.add(view.id);
    if (!view.composed) {
      const leaf = app.data.leaves[view.part.leaf];
      for (const mark of leaf.marks) if (!isPainted || mark !== leaf.family) marks.add(mark);
      continue;
    }
    view.plan!.layout.routes.forEach(({ back }, n) => marks.add(edgeKind(app.data, back, view.plan!.flows[n])));
  }
  return marks;
}

/** A swatch of the colour ramp, from low to high. */
function rampSwatch(ramp: string[]): SVGElement {
  const group = element("g");
  for (let n = 0; n < 9; n++) {
    const { fill } = ramp.length > 1 ? rampAt(ramp, n / 8) : { fill: ramp[0] };
    group.append(element("rect", { x: n * 1.75, y: 0.5, width: 2, height: 11, fill }));
  }
  return group;
}
