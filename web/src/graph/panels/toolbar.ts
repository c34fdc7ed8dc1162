// What can be done with the drawing as a whole.
import type { App, ThemeName } from "../app";
import { h, plural } from "../dom";
import { savePng, saveSvg } from "../render/drawing_export";
import { EVERYTHING } from "../layout/view_tree";
import { setTheme } from "../drawing_theme";

export function toolbar(app: App): HTMLElement {
  const made = h(
    "div",
    { class: "toolbar", role: "toolbar", "aria-label": "Drawing" },
    folding(app),
    zooming(app),
    direction(app),
    colours(app),
    themes(app),
    h(
      "div",
      { class: "group" },
      button("Save SVG", "Save what is unfolded as SVG", () => saveSvg(app)),
      button("Save PNG", "Save what is unfolded as PNG", () => void savePng(app)),
    ),
  );
  return made;
}

function folding(app: App): HTMLElement {
  const level = h("output", { "aria-live": "polite" });
  const less = button("−", "One level less", () => app.unfold(Math.max(1, app.scene.level() - 1)));
  const more = button("+", "One level more", () => app.unfold(app.scene.level() + 1));
  const deepest = app.scene.deepest();
  app.on("layout", () => {
    const depth = app.scene.level();
    more.disabled = depth >= deepest;
    level.textContent = plural(depth, "level");
    less.disabled = depth <= 1 && app.root.inside.every(({ view }) => !view.composed);
  });
  return h(
    "div",
    { class: "group" },
    button("Fold all", "Fold every box", () => app.unfold(1)),
    less,
    level,
    more,
    button("Unfold all", "Open every box, all modules of stacks too", () => app.unfold(EVERYTHING, true)),
  );
}

function zooming(app: App): HTMLElement {
  const scale = button("100 %", "Show at its own size", () => app.camera.zoom(1 / app.camera.k));
  scale.classList.add("scale");
  app.on("camera", () => (scale.textContent = `${Math.round(app.camera.k * 100)} %`));
  return h("div", { class: "group" }, button("Fit", "Show all of it (0)", () => app.fit()), scale);
}

function direction(app: App): HTMLElement {
  const ways = [
    button("Down", "Data flows down", () => app.turn(true)),
    button("Right", "Data flows right", () => app.turn(false)),
  ];
  app.on("layout", () => {
    ways.forEach((way, n) => way.setAttribute("aria-pressed", String(app.scene.down === (n === 0))));
  });
  return h("div", { class: "group joined", role: "group", "aria-label": "Direction" }, ...ways);
}

function colours(app: App): HTMLElement {
  const choice = h("select", { change: () => app.colourBy(choice.value) }, new Option("kind", "kind"));
  const made = h("label", { class: "group", hidden: true }, "Colour by ", choice);
  app.on("details", () => {
    const ways = Object.keys(app.details!.overlays);
    choice.replaceChildren(new Option("kind", "kind"), ...ways.map((way) => new Option(way, way)));
    made.hidden = !ways.length;
    if (ways.includes(app.data.colour_by)) {
      choice.value = app.data.colour_by;
      app.colourBy(choice.value);
    }
  });
  return made;
}

function themes(app: App): HTMLElement {
  const choice = h("select", { change: () => setTheme(app, choice.value as ThemeName) });
  choice.append(...["auto", "light", "dark"].map((name) => new Option(name, name, false, name === app.theme)));
  app.on("theme", () => (choice.value = app.theme));
  return h("label", { class: "group" }, "Theme ", choice);
}

function button(words: string, title: string, click: () => void): HTMLButtonElement {
  return h("button", { type: "button", title, click }, words);
}
