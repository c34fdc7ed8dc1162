// The drawing in the studio: in a shadow root, so that its styles and the page's do not meet; the selection is shared.
import { setTheme, themeCss } from "../../graph/drawing_theme";
import { fitToScreen, showDrawing, type DrawingView } from "../../graph/drawing_view";
import { LayerPaths } from "../../graph/layout/layer_paths";
import css from "../../graph/graph.css";
import { treeOf } from "../network/fold/visible_net";
import type { SceneTree } from "../network/fold/scene_tree";
import type { Selection, Store } from "../store";
import { theme } from "../theme";
import { BoxLayers } from "./box_layers";
import { followMarks } from "./graph_marks";
import { GraphPictures } from "./graph_pictures";
import { askDetails, loadFont, type GraphText } from "./graph_text";
import hostCss from "./graph_host.css";
import { addPictureControl } from "./picture_control";

/** One drawing on the Graph tab. */
export class GraphView {
  readonly drawing: DrawingView;
  private readonly paths: LayerPaths;
  private readonly tree: SceneTree | null;
  private readonly unsubscribers: (() => void)[];
  private sentPath = ""; // the box that was selected last, here or elsewhere
  private isFollowing = false; // while a selection made elsewhere is shown here
  private isPending = false; // a selection waits until the tab is open

  constructor(
    private readonly store: Store,
    host: HTMLElement,
    { data, layers }: GraphText,
  ) {
    const shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const root = document.createElement("div");
    root.id = "torcheer";
    shadow.adoptedStyleSheets = [hostCss, themeCss(data, ""), css].map(sheetOf);
    shadow.replaceChildren(root);
    loadFont(data.font);
    this.paths = new LayerPaths(data, layers);
    this.tree = treeOf(store.net.get());
    this.drawing = showDrawing(data, root, { themed: root, keys: root, isPage: false });
    const { app } = this.drawing;
    setTheme(app, theme.get());
    const boxLayers = new BoxLayers(data, layers, (module) => this.tree?.nodes.get(module)?.face?.layer.name);
    const pictures = new GraphPictures(store, app, boxLayers);
    const observer = fitToScreen(app);
    app.on("selection", () => this.sendSelection());
    const addDetails = (): void => void (app.details ?? this.addDetails(root));
    const timer = window.setTimeout(addDetails, 30); // after the drawing is on the screen
    this.unsubscribers = [
      followMarks(store, app, layers, this.paths),
      addPictureControl(store, pictures, root.querySelector(".toolbar")!),
      () => pictures.dispose(),
      () => observer.disconnect(),
      () => window.clearTimeout(timer),
      theme.subscribe((name) => setTheme(app, name)),
      store.connection.subscribe((state) => state === "open" && addDetails()), // it was lost before they came
      store.selection.subscribe((selection) => this.showSelection(selection)),
      store.tab.subscribe((tab) => tab === "graph" && this.showPending()),
    ];
    this.showSelection(store.selection.get());
  }

  private async addDetails(root: HTMLElement): Promise<void> {
    const { app } = this.drawing;
    try {
      app.details = await askDetails(this.store);
    } catch (error) {
      return app.showMessage(`What is known of the boxes could not be read: ${(error as Error).message}`);
    }
    app.emit("details");
    root.dataset.ready = "true";
  }

  dispose(): void {
    for (const end of this.unsubscribers) end();
  }

  // The box that was selected here becomes everybody's selection.
  private sendSelection(): void {
    const { app } = this.drawing;
    if (this.isFollowing || app.selected === this.sentPath) return;
    this.sentPath = app.selected;
    this.isPending = false;
    const box = app.selected ? app.byPath.get(app.selected) : undefined; // "" is the model's own: nothing is selected
    const layer = box ? this.paths.layerOf(box) : "";
    if (box?.view.fullPlan) this.store.selection.set(this.selectionOf(box.address, this.paths.layersIn(box)));
    else this.store.selection.set(layer ? { layer, unit: 0 } : null);
  }

  // A module's own result, as the 3D view shows it while it is closed; else that of its last layer.
  private selectionOf(module: string, layers: string[]): Selection | null {
    const face = this.tree?.nodes.get(module)?.face?.layer.name;
    const layer = face ?? layers[layers.length - 1];
    return layer ? { layer, unit: 0, module } : null;
  }

  // What was selected elsewhere is unfolded, selected and centred.
  private showSelection(selection: Selection | null): void {
    const { app } = this.drawing;
    const path = selection ? this.pathOf(selection) : "";
    if (path === this.sentPath || this.isShown(selection)) return;
    if (!path && !selection && !this.paths.layersIn(app.byPath.get(app.selected) ?? app.root).length) return; // an operation between layers
    this.isPending = this.store.tab.get() !== "graph"; // it has no size while it is hidden
    this.follow(this.isPending ? "" : path);
  }

  private follow(path: string): void {
    const { app } = this.drawing;
    this.isFollowing = true;
    if (path) app.show(path);
    else app.select("");
    this.isFollowing = false;
    this.sentPath = app.selected;
  }

  private showPending(): void {
    if (!this.isPending) return;
    this.isPending = false;
    requestAnimationFrame(() => {
      this.drawing.app.measureScreen();
      const selection = this.store.selection.get();
      if (selection) this.follow(this.pathOf(selection));
    });
  }

  // Whether the box that is selected is that of the selection already.
  private isShown(selection: Selection | null): boolean {
    const box = this.drawing.app.byPath.get(this.drawing.app.selected);
    if (!box?.parent || !selection || this.isPending) return false;
    return box.view.fullPlan ? box.address === selection.module : this.paths.layerOf(box) === selection.layer;
  }

  private pathOf({ layer, module }: Selection): string {
    const name = this.store.net.get()?.layers.find((placed) => placed.layer.name === layer)?.layer;
    const owner = name?.relation && !this.paths.pathOf(layer) ? name.other : layer; // attention's weights lie beside their layer
    return module === undefined ? this.paths.pathOf(owner) : this.paths.pathOfModule(module, owner);
  }
}

/** A style sheet of a shadow root. */
export function sheetOf(text: string): CSSStyleSheet {
  const sheet = new CSSStyleSheet(); // not a style element: the page's policy allows none
  sheet.replaceSync(text);
  return sheet;
}
