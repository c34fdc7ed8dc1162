// Breadcrumbs from the root to the selected box; each one is a link.
import type { App } from "../app";
import { h } from "../dom";
import type { PlacedBox } from "../layout/placement";
import { rectOf } from "../render/stage";

export function breadcrumbs(app: App): HTMLElement {
  const list = h("ol");
  const nav = h("nav", { class: "crumbs", "aria-label": "Way to the selection" }, list);
  const draw = (): void => {
    const steps: PlacedBox[] = [];
    for (let box: PlacedBox | null = app.byPath.get(app.selected) ?? null; box?.parent; box = box.parent)
      steps.unshift(box);
    const rootButton = h("button", { click: () => showAll(app) }, app.data.header[0] ?? "model");
    const buttons = steps.map((box) => {
      const label = box.view.name || app.data.leaves[box.view.part.leaf].kind;
      const isCurrent = box.path === app.selected && "true";
      return h("button", { "aria-current": isCurrent, title: box.address, click: () => app.show(box.path) }, label);
    });
    list.replaceChildren(...[rootButton, ...buttons].map((button) => h("li", {}, button)));
  };
  app.on("selection", draw);
  draw();
  return nav;
}

function showAll(app: App): void {
  app.select("");
  app.camera.fit(rectOf(app.root), true);
}
