// The drawing of a pass beside its steps: the current step is selected in it, and a click on a box goes to its step.
import type { App } from "../../graph/app";
import { visiblePath } from "../../graph/app";
import { setTheme, themeCss } from "../../graph/drawing_theme";
import { fitToScreen, showDrawing } from "../../graph/drawing_view";
import css from "../../graph/graph.css";
import { LayerPaths } from "../../graph/layout/layer_paths";
import { contains } from "../../graph/layout/rect";
import { rectOf } from "../../graph/render/stage";
import hostCss from "../graph/graph_host.css";
import { loadFont, type GraphText } from "../graph/graph_text";
import { sheetOf } from "../graph/graph_view";
import { theme } from "../theme";
import type { BackwardSteps, Step } from "./backward_steps";
import passCss from "./pass_graph.css";

const MAX_OPEN = 40; // items of a drawing that is opened as a whole
const MAX_UNFOLDED = 600; // of larger drawings what is folded stays folded: the box around a step is shown instead

/** One drawing. */
export class PassGraph {
  private readonly app: App;
  private readonly paths: LayerPaths;
  private readonly codes: number[]; // of each item: twice its op, one more for a rule
  private readonly items = new Map<number, number>(); // code -> item
  private readonly unsubscribers: (() => void)[];
  private isFollowing = false; // while a step is shown here
  private shown: Step | null = null;

  constructor(
    host: HTMLElement,
    { data, layers }: GraphText,
    private readonly steps: BackwardSteps,
    private readonly go: (place: number) => void,
  ) {
    const shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const root = document.createElement("div");
    root.id = "torcheer";
    shadow.adoptedStyleSheets = [hostCss, themeCss(data, ""), css, passCss].map(sheetOf);
    shadow.replaceChildren(root);
    loadFont(data.font);
    this.codes = data.steps ?? [];
    this.codes.forEach((code, item) => this.items.set(code, item));
    this.paths = new LayerPaths(data, layers);
    this.app = showDrawing(data, root, { themed: root, keys: root, isPage: false }).app;
    setTheme(this.app, theme.get());
    const observer = fitToScreen(this.app);
    if (this.codes.length <= MAX_OPEN) this.app.unfold(MAX_OPEN, true);
    this.app.on("selection", () => this.followSelection());
    this.unsubscribers = [() => observer.disconnect(), theme.subscribe((name) => setTheme(this.app, name))];
    root.dataset.ready = "true";
  }

  dispose(): void {
    for (const end of this.unsubscribers) end();
  }

  /** Select the box of a step, or the folded one around it. */
  show(step: Step): void {
    const item = this.items.get(2 * step.op + (step.phase === "backward" ? 1 : 0));
    if (item === undefined || step === this.shown) return;
    this.shown = step;
    this.isFollowing = true;
    this.select(this.paths.pathOfItem(item));
    this.isFollowing = false;
  }

  fit(): void {
    this.app.fit();
  }

  private select(path: string): void {
    const { app } = this;
    if (!app.byPath.has(path) && this.codes.length <= MAX_UNFOLDED) return app.show(path);
    app.hover("");
    app.select(visiblePath(app.byPath, path));
    const box = app.byPath.get(app.selected);
    if (box?.parent && !contains(app.camera.view(), rectOf(box))) app.camera.centre(rectOf(box));
  }

  private followSelection(): void {
    const box = this.app.byPath.get(this.app.selected);
    if (this.isFollowing || !box || box.view.fullPlan) return;
    const code = this.codes[box.firstItem] ?? -1;
    const op = Math.floor(code / 2);
    const place = code < 0 ? 0 : code % 2 ? this.steps.find("backward", op) : this.placeOf(op);
    if (code >= 0 && place >= 0) this.go(place);
  }

  private placeOf(op: number): number {
    const forward = this.steps.find("forward", op);
    return forward >= 0 ? forward : this.steps.find("leaf", op);
  }
}
