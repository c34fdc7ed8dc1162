// Small pictures in the boxes of the graph: values as they come, or a logged statistic over the steps. Only what is on
// the screen, and large enough, is asked for.
import type { App } from "../../graph/app";
import type { PlacedBox } from "../../graph/layout/placement";
import { touches } from "../../graph/layout/rect";
import { element, translate } from "../../graph/render/painter";
import { rectOf } from "../../graph/render/stage";
import { loadItem, saveItem } from "../local_storage";
import type { PlacedLayer } from "../messages";
import type { Frame } from "../network/values/value_ranges";
import { Signal, type Store } from "../store";
import { theme } from "../theme";
import type { BoxLayers } from "./box_layers";
import { loggedLine, sparkPath, type LoggedLine } from "./spark_line";
import { ThumbnailPainter, type ThumbnailImage } from "./thumbnail";

export const PICTURE_CHOICES = ["values", "lines", "none"] as const;
export type PictureChoice = (typeof PICTURE_CHOICES)[number];

const SPACE = 30; // in units of the drawing
const MIN_SCALE = 0.5; // pixels per unit, below which a picture cannot be read
const MAX_PICTURES = 120;
const SETTLE_MS = 120; // after the last move of the camera
const CHOICE_KEY = "torcheer.graph.pictures";
const REDRAW_MS = 200; // between two states: a picture of a hundred boxes takes some milliseconds

/** The pictures of one drawing. */
export class GraphPictures {
  readonly choice = new Signal<PictureChoice>(savedChoice());
  private readonly layersByName: ReadonlyMap<string, PlacedLayer>;
  private boxes: PlacedBox[] = []; // that have room for a picture now
  private frames = new Map<string, Frame>();
  private pendingFrames = new Map<string, Frame>();
  private images = new Map<string, ThumbnailImage>(); // by layer and aspect, of these frames
  private painter: ThumbnailPainter | null = null;
  private timer = 0;
  private drawTimer = 0;
  private readonly unsubscribers: (() => void)[];

  constructor(
    private readonly store: Store,
    private readonly app: App,
    private readonly boxLayers: BoxLayers,
  ) {
    this.layersByName = new Map(store.net.get()?.layers.map((placed) => [placed.layer.name, placed]));
    this.reserveSpace();
    app.pictureOf = (box) => this.pictureOf(box);
    app.on("camera", () => this.settle());
    app.on("layout", () => this.follow());
    this.unsubscribers = [
      store.socket.onFrame((head, bytes) => {
        if (head.look === store.lookNumber) this.pendingFrames.set(head.layer, { head, bytes });
      }),
      store.onShown(({ look }) => look === store.lookNumber && this.receiveState()),
      store.tab.subscribe(() => this.follow()),
      store.tables.subscribe(() => this.schedule()),
      store.viewSettings.subscribe(() => this.schedule()),
      theme.subscribe(() => this.schedule()),
    ];
  }

  choose(choice: PictureChoice): void {
    this.choice.set(choice);
    saveItem(CHOICE_KEY, choice);
    this.reserveSpace();
    this.follow();
  }

  private reserveSpace(): void {
    this.app.setPictureSpace(this.boxLayers.leaves, this.choice.get() === "none" ? 0 : SPACE);
  }

  dispose(): void {
    window.clearTimeout(this.timer);
    window.clearTimeout(this.drawTimer);
    this.store.picturedLayers.set([]);
    for (const end of this.unsubscribers) end();
  }

  private get isShown(): boolean {
    return this.store.tab.get() === "graph" && this.choice.get() !== "none";
  }

  private settle(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.follow(), SETTLE_MS);
  }

  // Which boxes have a picture now; the server is asked for those of them.
  private follow(): void {
    window.clearTimeout(this.timer);
    this.boxes = this.isShown && this.app.camera.k >= MIN_SCALE ? this.visibleBoxes() : [];
    const names = this.choice.get() === "values" ? this.boxes.map((box) => this.boxLayers.layerOf(box)) : [];
    const layers = [...new Set(names)].sort();
    if (layers.join("\0") !== this.store.picturedLayers.get().join("\0")) this.store.picturedLayers.set(layers);
    this.draw();
  }

  private visibleBoxes(): PlacedBox[] {
    const view = this.app.camera.view();
    const boxes: PlacedBox[] = [];
    for (const box of this.app.boxes) {
      if (boxes.length === MAX_PICTURES) break;
      if (!box.view.composed && touches(rectOf(box), view) && this.boxLayers.layerOf(box)) boxes.push(box);
    }
    return boxes;
  }

  private receiveState(): void {
    const isGraph = this.store.tab.get() === "graph"; // else these are the Network tab's, and whole
    if (isGraph && this.store.picturedLayers.get().length) {
      this.frames = this.pendingFrames;
      this.schedule();
    }
    this.pendingFrames = new Map();
  }

  private schedule(): void {
    if (!this.isShown) return;
    this.drawTimer ||= window.setTimeout(() => {
      this.drawTimer = 0;
      this.images.clear();
      this.painter = null;
      this.draw();
    }, REDRAW_MS);
  }

  private draw(): void {
    const groups = this.boxes.flatMap((box) => {
      const picture = this.pictureOf(box);
      if (!picture) return [];
      const group = element("g", { transform: translate(box.x, box.y) });
      group.append(picture);
      group.dataset.layer = this.boxLayers.layerOf(box);
      return [group];
    });
    this.app.stage.pictures.replaceChildren(...groups);
  }

  private pictureOf(box: PlacedBox): SVGElement | null {
    const area = this.app.painter.pictureArea(box.view.part.leaf, this.app.tree.down);
    const placed = area && this.layersByName.get(this.boxLayers.layerOf(box));
    if (!placed) return null;
    const image = this.imageOf(placed, area.width / area.height);
    if (image) {
      const preserveAspectRatio = image.keepsShape ? "xMinYMid meet" : "none";
      return element("image", { ...area, href: image.url, preserveAspectRatio, "image-rendering": "pixelated" });
    }
    const line = this.lineOf(placed);
    if (!line) return null;
    const group = element("g", { transform: translate(area.x, area.y + 2) });
    const stroke = { fill: "none", stroke: "#2a6fdb", "stroke-width": 1.3 };
    group.append(
      element("path", { class: "spark", d: sparkPath(line.points, area.width, area.height - 4), ...stroke }),
    );
    return group;
  }

  private imageOf(placed: PlacedLayer, aspect: number): ThumbnailImage | null {
    const frame = this.choice.get() === "values" && this.frames.get(placed.layer.name);
    if (!frame || !frame.bytes.length) return null;
    const key = `${placed.layer.name}\0${aspect}`;
    let image = this.images.get(key);
    if (!image) {
      this.painter ??= new ThumbnailPainter(this.frames, this.variable);
      this.images.set(key, (image = this.painter.paint(frame, placed, aspect)));
    }
    return image;
  }

  private lineOf({ layer }: PlacedLayer): LoggedLine | null {
    return loggedLine(this.store.tables.get(), layer, this.variable?.name ?? "", this.store.shownStep);
  }

  private get variable() {
    const name = this.store.unitVariable(this.store.viewSettings.get().variable);
    return this.store.net.get()?.variables.find((variable) => variable.name === name);
  }
}

function savedChoice(): PictureChoice {
  const saved = loadItem(CHOICE_KEY);
  return PICTURE_CHOICES.find((choice) => choice === saved) ?? "values";
}
