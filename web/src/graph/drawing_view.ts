// The drawing with its panels, in an element of a page: the page of a file, or the studio's Graph tab.
import { App } from "./app";
import { breadcrumbs } from "./panels/breadcrumbs";
import type { Payload } from "./payload";
import { h } from "./dom";
import { SearchPanel } from "./panels/search_panel";
import { attachGestures } from "../camera/gestures";
import { attachHighlights } from "./render/highlights";
import { attachKeyboard } from "./input/keyboard";
import { legend } from "./panels/legend";
import { minimap } from "./panels/minimap";
import { detailsPanel } from "./panels/details_panel";
import { pointerActions } from "./input/pointer_actions";
import { toolbar } from "./panels/toolbar";

const MESSAGE_MS = 6000;

export interface DrawingOptions {
  themed: HTMLElement; // takes the class "dark"
  keys: Document | HTMLElement; // whose keys the drawing answers
  isPage: boolean; // whether it is all of its page: has a title and a choice of themes
}

/** The drawing, and its search field. */
export interface DrawingView {
  app: App;
  search: HTMLInputElement;
}

/** Show a drawing in an element. */
export function showDrawing(data: Payload, root: HTMLElement, options: DrawingOptions): DrawingView {
  const screen = h("div", { class: "screen", tabindex: "0", role: "tree", "aria-label": "The model's boxes" });
  const app = new App(data, screen, options.themed);
  const statusLine = h("p", { class: "said", role: "status", hidden: true });
  const finder = new SearchPanel(app);
  const [title, ...facts] = data.header;
  root.replaceChildren(
    h(
      "header",
      {},
      h(
        "div",
        { class: "name" },
        options.isPage && h("h1", {}, title ?? "model"),
        h("p", { class: "soft" }, facts.join("  ·  ")),
      ),
      finder.input,
      toolbar(app, options.isPage),
    ),
    h("main", {}, screen, statusLine),
    h("aside", {}, finder.results, detailsPanel(app), minimap(app)),
    h("footer", {}, breadcrumbs(app), legend(app)),
  );
  showMessagesIn(app, statusLine);
  attachHighlights(app);
  attachGestures(screen, pointerActions(app));
  attachKeyboard(app, finder.input, options.keys);
  return { app, search: finder.input };
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

/** Open the drawing, and keep it fitted to its element until the user moves it. */
export function fitToScreen(app: App): ResizeObserver {
  app.measureScreen();
  app.open();
  const cameraPose = (): string => `${app.camera.x} ${app.camera.y} ${app.camera.k}`;
  let fittedPose = cameraPose();
  const observer = new ResizeObserver(() => {
    if (!app.screen.clientWidth) return; // another tab is open
    app.measureScreen();
    if (cameraPose() === fittedPose) {
      app.open();
      fittedPose = cameraPose();
    } else {
      app.stage.update();
      app.emit("camera");
    }
  });
  observer.observe(app.screen);
  return observer;
}
