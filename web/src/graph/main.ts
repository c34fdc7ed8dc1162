// Entry point of the drawing's page: unpack the payload, build the panels, show the model.
import { App } from "./app";
import { breadcrumbs } from "./panels/breadcrumbs";
import { Details, parsePayload, unpack, type Payload } from "./payload";
import { h } from "./dom";
import { SearchPanel } from "./panels/search_panel";
import { attachGestures } from "./input/gestures";
import { attachHighlights } from "./render/highlights";
import { attachKeyboard } from "./input/keyboard";
import { legend } from "./panels/legend";
import { minimap } from "./panels/minimap";
import css from "./graph.css";
import { detailsPanel } from "./panels/details_panel";
import { pointerActions } from "./input/pointer_actions";
import { watchTheme, themeCss } from "./drawing_theme";
import { toolbar } from "./panels/toolbar";

const MESSAGE_MS = 6000;

async function start(): Promise<void> {
  const root = document.getElementById("torcheer")!;
  const unpackScript = (id: string): Promise<string> => unpack(document.getElementById(id)!.textContent);
  try {
    const data = parsePayload(await unpackScript("data"));
    const app = build(data, root);
    await new Promise((resolve) => setTimeout(resolve, 30)); // let the drawing appear before the details are parsed
    app.details = new Details(await unpackScript("details"));
    app.emit("details");
    root.dataset.ready = "true";
  } catch (error) {
    root.replaceChildren(h("p", { role: "alert" }, `This drawing cannot be opened: ${String(error)}`));
    throw error;
  }
}

function build(data: Payload, root: HTMLElement): App {
  document.head.append(h("style", {}, themeCss(data) + css));
  const screen = h("div", { class: "screen", tabindex: "0", role: "tree", "aria-label": "The model's boxes" });
  const app = new App(data, screen);
  const statusLine = h("p", { class: "said", role: "status", hidden: true });
  const finder = new SearchPanel(app);
  const [title, ...facts] = data.header;
  root.replaceChildren(
    h(
      "header",
      {},
      h("div", { class: "name" }, h("h1", {}, title ?? "model"), h("p", { class: "soft" }, facts.join("  ·  "))),
      finder.input,
      toolbar(app),
    ),
    h("main", {}, screen, statusLine),
    h("aside", {}, finder.results, detailsPanel(app), minimap(app)),
    h("footer", {}, breadcrumbs(app), legend(app)),
  );
  showMessagesIn(app, statusLine);
  attachHighlights(app);
  attachGestures(screen, app.camera, pointerActions(app));
  attachKeyboard(app, finder.input);
  watchTheme(app);
  app.measureScreen();
  app.open();
  fitOnResize(app);
  return app;
}

function showMessagesIn(app: App, statusLine: HTMLElement): void {
  let timer = 0;
  app.showMessage = (text) => {
    statusLine.textContent = text;
    statusLine.hidden = false;
    clearTimeout(timer);
    timer = window.setTimeout(() => (statusLine.hidden = true), MESSAGE_MS);
  };
}

/** Keep the drawing fitted to the window until the user moves it. */
function fitOnResize(app: App): void {
  const cameraPose = (): string => `${app.camera.x} ${app.camera.y} ${app.camera.k}`;
  let fittedPose = cameraPose();
  new ResizeObserver(() => {
    app.measureScreen();
    if (cameraPose() === fittedPose) {
      app.open();
      fittedPose = cameraPose();
    } else {
      app.stage.update();
      app.emit("camera");
    }
  }).observe(app.screen);
}

void start();
