// What is known of the box that is pointed at or selected, beside the drawing.
import type { App } from "../app";
import { h, plural } from "../dom";
import { join, type Placed } from "../layout/placement";
import { trace } from "../layout/edge_trace";

const NAMED = 12; // neighbours that are listed

export function panel(app: App): HTMLElement {
  const made = h("section", { class: "details", "aria-label": "Details" });
  const draw = (): void => {
    const box = app.pointed;
    made.replaceChildren(...(box?.parent ? about(app, box) : overview(app)));
    requestAnimationFrame(() => (made.scrollTop = 0));
  };
  for (const news of ["selection", "hover", "details"] as const) app.on(news, draw);
  return made;
}

function overview(app: App): HTMLElement[] {
  if (!app.root.view.boxes) return [h("p", { class: "soft" }, "Nothing ran: there is nothing to draw.")];
  return [
    h("p", { class: "soft" }, "Point at a box for its details."),
    h("p", { class: "soft" }, "Click a folded box to open it, and the title of an open one to fold it."),
    h(
      "dl",
      { class: "keys" },
      ...([
        ["/", "search"],
        ["Tab", "go through the boxes"],
        ["Enter", "open or fold"],
        ["+ − 0", "zoom, fit"],
        ["Esc", "let go; then Tab leaves"],
      ].flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
    ),
  ];
}

function about(app: App, box: Placed): HTMLElement[] {
  const { view } = box;
  const leaf = app.data.leaves[view.part.leaf];
  const times = view.whole && view.whole.times > 1 ? ` ×${view.whole.times}` : "";
  const found: HTMLElement[] = [
    h("h2", {}, view.name || kindOf(app, box), view.name ? h("span", { class: "soft" }, ` ${leaf.kind}`) : null, times),
  ];
  const address = view.whole?.sort === "stack" ? join(box.parent!.address, view.name) : box.address;
  if (address && address !== view.name) found.push(h("p", { class: "address" }, address));
  if (view.whole) found.push(folding(app, box));
  found.push(h("dl", {}, ...facts(app, box).flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])));
  found.push(...neighbours(app, box));
  return found;
}

/** What can be opened or folded, for those who do not find the title. */
function folding(app: App, { path, view }: Placed): HTMLElement {
  const { sort, times } = view.whole!;
  const button = (words: string, mode: "folded" | "open" | "one"): HTMLElement =>
    h("button", { click: () => app.change(path, mode) }, words);
  const made = h("p", { class: "folding" });
  if (view.mode !== "folded") made.append(button("Fold", "folded"));
  if (sort !== "stack" && view.mode === "folded") made.append(button("Open", "open"));
  if (sort === "stack" && view.mode !== "one") made.append(button("Show one", "one"));
  if (sort === "stack" && view.mode !== "open") made.append(button(`Show all ${times}`, "open"));
  return made;
}

function facts(app: App, box: Placed): [string, string][] {
  const { view } = box;
  const leaf = app.data.leaves[view.part.leaf];
  const found: [string, string][] = [];
  if (leaf.body && leaf.look !== "gradient" && leaf.look !== "constant") found.push([view.whole ? "inside" : "settings", leaf.body]);
  const value = app.colouring?.value(box);
  if (app.colouring && value != null) found.push([app.data.colour_names[app.colouring.way], app.colouring.tell(value)]);
  if (leaf.badge) found.push(["shared", `weights of all boxes marked ${leaf.badge}`]);
  if (!view.whole) {
    if (!app.details) return [...found, ["", "reading …"]];
    const [label, , known] = app.details.item(box.first);
    return [...found, ["label", label], ...known];
  }
  const { sort, names, size } = view.whole;
  if (sort === "stack") found.push(["modules", plural(names.length, "identical module")], ["names", list(names)]);
  else if (sort === "pill") found.push(["functions", view.whole.parts.map((part) => app.data.leaves[part.leaf].kind).join(", ")]);
  else found.push(["items", plural(size, "item")]);
  const shapes = leaf.exits.filter(Boolean);
  if (shapes.length) found.push(["results", shapes.join(", ")]);
  return found;
}

function list(names: string[]): string {
  return names.length <= NAMED ? names.join(", ") : `${names.slice(0, 5).join(", ")}, … ${names[names.length - 1]}`;
}

function neighbours(app: App, box: Placed): HTMLElement[] {
  const { before, after } = trace(box);
  return [
    ["reads from", before] as const,
    ["read by", after] as const,
  ].flatMap(([words, boxes]) => {
    if (!boxes.length) return [];
    const rows = boxes.slice(0, NAMED).map((one) => h("li", {}, link(app, one)));
    if (boxes.length > NAMED) rows.push(h("li", { class: "soft" }, `and ${boxes.length - NAMED} more`));
    return [h("h3", {}, words), h("ul", { class: "near" }, ...rows)];
  });
}

/** Its class or function; the rule of an operation is not the operation. */
function kindOf(app: App, { view }: Placed): string {
  const { kind, look } = app.data.leaves[view.part.leaf];
  return look === "gradient" ? `${kind}, backward` : kind;
}

function link(app: App, box: Placed): HTMLElement {
  const { kind } = app.data.leaves[box.view.part.leaf];
  const go = (): void => {
    app.hover("");
    app.show(box.path);
  };
  return h(
    "button",
    { title: box.address, click: go },
    box.view.name || kindOf(app, box),
    box.view.name ? h("span", { class: "soft" }, ` ${kind}`) : null,
  );
}
