// The way from the whole to the selected box; each step of it can be gone to.
import type { App } from "../app";
import { h } from "../dom";
import type { Placed } from "../layout/placement";
import { rectOf } from "../render/stage";

export function crumbs(app: App): HTMLElement {
  const list = h("ol");
  const made = h("nav", { class: "crumbs", "aria-label": "Way to the selection" }, list);
  const draw = (): void => {
    const steps: Placed[] = [];
    for (let box: Placed | null = app.byPath.get(app.selected) ?? null; box?.parent; box = box.parent) steps.unshift(box);
    const whole = h("button", { click: () => whence(app) }, app.data.header[0] ?? "model");
    const buttons = steps.map((box) => {
      const words = box.view.name || app.data.leaves[box.view.part.leaf].kind;
      const here = box.path === app.selected && "true";
      return h("button", { "aria-current": here, title: box.address, click: () => app.show(box.path) }, words);
    });
    list.replaceChildren(...[whole, ...buttons].map((button) => h("li", {}, button)));
  };
  app.on("selection", draw);
  draw();
  return made;
}

function whence(app: App): void {
  app.select("");
  app.camera.fit(rectOf(app.root), true);
}
