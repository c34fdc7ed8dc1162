// The toolbar: actions on the whole drawing.
import type { App, ThemeName } from "../app";
import type { ColourChoice } from "../render/quantity_scale";
import { h, plural } from "../dom";
import { savePng, saveSvg } from "../render/drawing_export";
import { ALL_LEVELS } from "../layout/view_tree";
import { setTheme } from "../drawing_theme";

export function toolbar(app: App, hasTheme: boolean): HTMLElement {
  const bar = h(
    "div",
    { class: "toolbar", role: "toolbar", "aria-label": "Drawing" },
    foldGroup(app),
    zoomGroup(app),
    directionGroup(app),
    colourGroup(app),
    hasTheme && themeGroup(app),
    h(
      "div",
      { class: "group" },
      makeButton("Save SVG", "Save what is unfolded as SVG", () => saveSvg(app)),
      makeButton("Save PNG", "Save what is unfolded as PNG", () => void savePng(app)),
    ),
  );
  return bar;
}

function foldGroup(app: App): HTMLElement {
  const level = h("output", { "aria-live": "polite" });
  const less = makeButton("−", "One level less", () => app.unfold(Math.max(1, app.tree.level() - 1)));
  const more = makeButton("+", "One level more", () => app.unfold(app.tree.level() + 1));
  const deepest = app.tree.deepest();
  app.on("layout", () => {
    const depth = app.tree.level();
    more.disabled = depth >= deepest;
    level.textContent = plural(depth, "level");
    less.disabled = depth <= 1 && app.root.children.every(({ view }) => !view.composed);
  });
  return h(
    "div",
    { class: "group" },
    makeButton("Fold all", "Fold every box", () => app.unfold(1)),
    less,
    level,
    more,
    makeButton("Unfold all", "Open every box, all modules of stacks too", () => app.unfold(ALL_LEVELS, true)),
  );
}

function zoomGroup(app: App): HTMLElement {
  const scale = makeButton("100 %", "Show at its own size", () => app.camera.zoom(1 / app.camera.k));
  scale.classList.add("scale");
  app.on("camera", () => (scale.textContent = `${Math.round(app.camera.k * 100)} %`));
  return h(
    "div",
    { class: "group" },
    makeButton("Fit", "Show all of it (0)", () => app.fit()),
    scale,
  );
}

function directionGroup(app: App): HTMLElement {
  const buttons = [
    makeButton("Down", "Data flows down", () => app.setDirection(true)),
    makeButton("Right", "Data flows right", () => app.setDirection(false)),
  ];
  app.on("layout", () => {
    buttons.forEach((button, n) => button.setAttribute("aria-pressed", String(app.tree.down === (n === 0))));
  });
  return h("div", { class: "group joined", role: "group", "aria-label": "Direction" }, ...buttons);
}

function colourGroup(app: App): HTMLElement {
  const choice = h("select", { change: () => app.colourBy(choice.value) }, new Option("kind", "kind"));
  const label = h("label", { class: "group", hidden: true }, "Colour by ", choice);
  const list = (): void => {
    const chosen = choice.value;
    const choices = app.colourChoices();
    choice.replaceChildren(...choices.map(colourOption));
    choice.value = choices.some(({ quantity, reason }) => quantity === chosen && !reason) ? chosen : "kind";
    label.hidden = choices.length < 2;
  };
  app.on("colours", list);
  app.on("colour", () => (choice.value = app.colourScale?.quantity ?? "kind"));
  app.on("details", () => {
    list();
    if (app.data.colour_by in app.details!.overlays) {
      choice.value = app.data.colour_by;
      app.colourBy(choice.value);
    }
  });
  return label;
}

function colourOption({ quantity, title, reason }: ColourChoice): HTMLOptionElement {
  const option = new Option(title, quantity);
  option.disabled = reason !== "";
  option.title = reason;
  return option;
}

function themeGroup(app: App): HTMLElement {
  const choice = h("select", { change: () => setTheme(app, choice.value as ThemeName) });
  choice.append(...["auto", "light", "dark"].map((name) => new Option(name, name, false, name === app.theme)));
  app.on("theme", () => (choice.value = app.theme));
  return h("label", { class: "group" }, "Theme ", choice);
}

function makeButton(label: string, title: string, click: () => void): HTMLButtonElement {
  return h("button", { type: "button", title, click }, label);
}
