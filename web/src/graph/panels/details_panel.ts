// The details panel beside the drawing: facts of the hovered or selected box.
import type { App } from "../app";
import { h, plural } from "../dom";
import { joinAddress, type PlacedBox } from "../layout/placement";
import { traceEdges } from "../layout/edge_trace";
import { legendOf } from "../render/quantity_scale";

const MAX_LISTED = 12; // maximum number of neighbours listed

export function detailsPanel(app: App): HTMLElement {
  const section = h("section", { class: "details", "aria-label": "Details" });
  const draw = (): void => {
    const box = app.focusBox;
    section.replaceChildren(...(box?.parent ? boxDetails(app, box) : overview(app)));
    requestAnimationFrame(() => (section.scrollTop = 0));
  };
  for (const event of ["selection", "hover", "details"] as const) app.on(event, draw);
  return section;
}

function overview(app: App): HTMLElement[] {
  if (!app.root.view.boxCount) return [h("p", { class: "soft" }, "Nothing ran: there is nothing to draw.")];
  return [
    h("p", { class: "soft" }, "Point at a box for its details."),
    h("p", { class: "soft" }, "Click a folded box to open it, and the title of an open one to fold it."),
    h(
      "dl",
      { class: "keys" },
      ...[
        ["/", "search"],
        ["Tab", "go through the boxes"],
        ["Enter", "open or fold"],
        ["+ − 0", "zoom, fit"],
        ["Esc", "let go; then Tab leaves"],
      ].flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)]),
    ),
  ];
}

function boxDetails(app: App, box: PlacedBox): HTMLElement[] {
  const { view } = box;
  const leaf = app.data.leaves[view.part.leaf];
  const times = view.fullPlan && view.fullPlan.times > 1 ? ` ×${view.fullPlan.times}` : "";
  const elements: HTMLElement[] = [
    h("h2", {}, view.name || kindOf(app, box), view.name ? h("span", { class: "soft" }, ` ${leaf.kind}`) : null, times),
  ];
  const address = view.fullPlan?.sort === "stack" ? joinAddress(box.parent!.address, view.name) : box.address;
  if (address && address !== view.name) elements.push(h("p", { class: "address" }, address));
  if (view.fullPlan) elements.push(foldButtons(app, box));
  elements.push(h("dl", {}, ...facts(app, box).flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])));
  elements.push(...neighbours(app, box));
  return elements;
}

/** Buttons to open or fold, for users who do not find the title. */
function foldButtons(app: App, { path, view }: PlacedBox): HTMLElement {
  const { sort, times } = view.fullPlan!;
  const button = (label: string, mode: "folded" | "open" | "one"): HTMLElement =>
    h("button", { click: () => app.setMode(path, mode) }, label);
  const paragraph = h("p", { class: "folding" });
  if (view.mode !== "folded") paragraph.append(button("Fold", "folded"));
  if (sort !== "stack" && view.mode === "folded") paragraph.append(button("Open", "open"));
  if (sort === "stack" && view.mode !== "one") paragraph.append(button("Show one", "one"));
  if (sort === "stack" && view.mode !== "open") paragraph.append(button(`Show all ${times}`, "open"));
  return paragraph;
}

function facts(app: App, box: PlacedBox): [string, string][] {
  const { view } = box;
  const leaf = app.data.leaves[view.part.leaf];
  const rows: [string, string][] = [];
  if (leaf.body && leaf.look !== "gradient" && leaf.look !== "constant")
    rows.push([view.fullPlan ? "inside" : "settings", leaf.body]);
  const value = app.colourScale?.value(box);
  if (app.colourScale && value != null)
    rows.push([legendOf(app.colourScale.quantity, app.data.time_name), app.colourScale.formatValue(value)]);
  if (leaf.badge) rows.push(["shared", `weights of all boxes marked ${leaf.badge}`]);
  if (!view.fullPlan) {
    if (!app.details) return [...rows, ["", "reading …"]];
    const [label, , itemFacts] = app.details.item(box.firstItem);
    return [...rows, ["label", label], ...itemFacts];
  }
  const { sort, names, size } = view.fullPlan;
  if (sort === "stack") rows.push(["modules", plural(names.length, "identical module")], ["names", joinNames(names)]);
  else if (sort === "pill")
    rows.push(["functions", view.fullPlan.parts.map((part) => app.data.leaves[part.leaf].kind).join(", ")]);
  else rows.push(["items", plural(size, "item")]);
  const shapes = leaf.exits.filter(Boolean);
  if (shapes.length) rows.push(["results", shapes.join(", ")]);
  return rows;
}

function joinNames(names: string[]): string {
  return names.length <= MAX_LISTED
    ? names.join(", ")
    : `${names.slice(0, 5).join(", ")}, … ${names[names.length - 1]}`;
}

function neighbours(app: App, box: PlacedBox): HTMLElement[] {
  const { before, after } = traceEdges(box);
  return [["reads from", before] as const, ["read by", after] as const].flatMap(([heading, boxes]) => {
    if (!boxes.length) return [];
    const rows = boxes.slice(0, MAX_LISTED).map((neighbour) => h("li", {}, link(app, neighbour)));
    if (boxes.length > MAX_LISTED) rows.push(h("li", { class: "soft" }, `and ${boxes.length - MAX_LISTED} more`));
    return [h("h3", {}, heading), h("ul", { class: "near" }, ...rows)];
  });
}

/** The class or function of a box; a backward rule is marked as such, because it is not the operation. */
function kindOf(app: App, { view }: PlacedBox): string {
  const { kind, look } = app.data.leaves[view.part.leaf];
  return look === "gradient" ? `${kind}, backward` : kind;
}

function link(app: App, box: PlacedBox): HTMLElement {
  const { kind } = app.data.leaves[box.view.part.leaf];
  const show = (): void => {
    app.hover("");
    app.show(box.path);
  };
  return h(
    "button",
    { title: box.address, click: show },
    box.view.name || kindOf(app, box),
    box.view.name ? h("span", { class: "soft" }, ` ${kind}`) : null,
  );
}
