// The drawing's page: unpack the data, put the parts together, show the model.
import { App } from "./app";
import { crumbs } from "./panels/breadcrumbs";
import { Details, readData, unpack, type Data } from "./payload";
import { h } from "./dom";
import { Finder } from "./panels/search_panel";
import { listen } from "./input/gestures";
import { halos } from "./render/highlights";
import { keys } from "./input/keyboard";
import { legend } from "./panels/legend";
import { minimap } from "./panels/minimap";
import css from "./graph.css";
import { panel } from "./panels/details_panel";
import { pointing } from "./input/pointer_actions";
import { followTheme, themeRules } from "./drawing_theme";
import { toolbar } from "./panels/toolbar";

const SAID_MS = 6000;

async function start(): Promise<void> {
  const place = document.getElementById("torcheer")!;
  const packed = (id: string): Promise<string> => unpack(document.getElementById(id)!.textContent!);
  try {
    const data = readData(await packed("data"));
    const app = build(data, place);
    await new Promise((resolve) => setTimeout(resolve, 30)); // the drawing is seen before the rest is read
    app.details = new Details(await packed("details"));
    app.tell("details");
    place.dataset.ready = "true";
  } catch (error) {
    place.replaceChildren(h("p", { role: "alert" }, `This drawing cannot be opened: ${String(error)}`));
    throw error;
  }
}

function build(data: Data, place: HTMLElement): App {
  document.head.append(h("style", {}, themeRules(data) + css));
  const screen = h("div", { class: "screen", tabindex: "0", role: "tree", "aria-label": "The model's boxes" });
  const app = new App(data, screen);
  const said = h("p", { class: "said", role: "status", hidden: true });
  const finder = new Finder(app);
  const [title, ...facts] = data.header;
  place.replaceChildren(
    h(
      "header",
      {},
      h("div", { class: "name" }, h("h1", {}, title ?? "model"), h("p", { class: "soft" }, facts.join("  ·  "))),
      finder.input,
      toolbar(app),
    ),
    h("main", {}, screen, said),
    h("aside", {}, finder.results, panel(app), minimap(app)),
    h("footer", {}, crumbs(app), legend(app)),
  );
  tellIn(app, said);
  halos(app);
  listen(screen, app.camera, pointing(app));
  keys(app, finder.input);
  followTheme(app);
  app.measure();
  app.open();
  keepFitted(app);
  return app;
}

function tellIn(app: App, said: HTMLElement): void {
  let timer = 0;
  app.say = (words) => {
    said.textContent = words;
    said.hidden = false;
    clearTimeout(timer);
    timer = window.setTimeout(() => (said.hidden = true), SAID_MS);
  };
}

/** While nobody has moved the drawing, it fits the window, whatever size that takes. */
function keepFitted(app: App): void {
  const where = (): string => `${app.camera.x} ${app.camera.y} ${app.camera.k}`;
  let fitted = where();
  new ResizeObserver(() => {
    app.measure();
    if (where() === fitted) {
      app.open();
      fitted = where();
    } else {
      app.stage.look();
      app.tell("camera");
    }
  }).observe(app.screen);
}

void start();
