// The page's state and actions: open boxes, selection, hover. Panels subscribe to its events and call its methods.
import { Camera } from "./input/camera";
import { ColourScale } from "./render/colour_scale";
import { colourChoices, type ColourChoice } from "./render/quantity_scale";
import type { Payload, Details } from "./payload";
import { groupDigits, plural } from "./dom";
import { placeBoxes, type PlacedBox } from "./layout/placement";
import { reservePictureSpace } from "./layout/picture_space";
import { Painter, type Paint } from "./render/painter";
import { ViewTree, type Mode } from "./layout/view_tree";
import { rectOf, Stage } from "./render/stage";

export type AppEvent =
  "layout" | "camera" | "selection" | "hover" | "details" | "theme" | "colours" | "colour" | "faults";
export type ThemeName = "auto" | "light" | "dark";
export const MAX_UNFOLDED = 3000; // maximum number of boxes unfolded at once
const NARROW_PX = 600; // pixels

/** Something wrong in a box, which may be folded away. */
export interface BoxFault {
  path: string;
  text: string;
  first: string; // "first" where NaN or infinities began, "first seen" where they may have begun elsewhere; else ""
}

export class App {
  readonly tree: ViewTree;
  readonly painter: Painter;
  readonly camera: Camera;
  readonly stage: Stage;
  details: Details | null = null;
  boxes: PlacedBox[] = []; // every drawn box, the root first
  byPath = new Map<string, PlacedBox>();
  selected = ""; // box paths; "" for none
  hovered = "";
  searchHits: string[] = []; // paths of the first search matches
  colourScale: ColourScale | null = null;
  faults: BoxFault[] = [];
  colourChoices = (): ColourChoice[] =>
    colourChoices(Object.keys(this.details?.overlays ?? {}), this.data.time_name).filter(({ reason }) => !reason);
  pictureOf: (box: PlacedBox) => SVGElement | null = () => null; // what who embeds the drawing shows in a box
  theme: ThemeName;
  showMessage: (words: string) => void = () => {}; // show a message to the user
  private size = { width: 1, height: 1 }; // screen size in pixels, cached: reading it after each change would force a page layout each time
  private isColumn = false;
  private isSettling = false; // true while boxes and camera change together
  private listeners: [AppEvent, () => void][] = [];

  constructor(
    readonly data: Payload,
    readonly screen: HTMLElement,
    readonly themed: HTMLElement, // has the class "dark" in the dark theme
  ) {
    this.theme = data.theme === "light" || data.theme === "dark" ? data.theme : "auto";
    this.tree = new ViewTree(data);
    this.painter = new Painter(data);
    this.camera = new Camera(
      () => {
        if (this.isSettling) return;
        this.stage.update();
        this.emit("camera");
      },
      () => this.size,
    );
    this.stage = new Stage(this.painter, this.camera, (box) => this.describe(box));
    screen.append(this.stage.rectangles.canvas, this.stage.svg);
    this.on("theme", () => {
      this.stage.rectangles.clearStyles();
      this.stage.update();
    });
  }

  on(event: AppEvent, listener: () => void): void {
    this.listeners.push([event, listener]);
  }

  emit(event: AppEvent): void {
    for (const [subscribed, listener] of this.listeners) if (subscribed === event) listener();
  }

  /** The box whose details are shown: the hovered one, else the selected one. */
  get focusBox(): PlacedBox | undefined {
    return this.byPath.get(this.hovered || this.selected);
  }

  get root(): PlacedBox {
    return this.boxes[0];
  }

  /** Lay out and place all boxes again. `aim` moves the camera; if the boxes should animate, it returns how far the
   * camera moved with them. */
  private layOut(aim: () => [number, number] | null): void {
    this.boxes = placeBoxes(this.tree);
    this.byPath = new Map(this.boxes.map((box) => [box.path, box]));
    this.selected = visiblePath(this.byPath, this.selected);
    this.hovered = "";
    this.isSettling = true;
    const shift = aim();
    this.isSettling = false;
    this.redraw(shift);
    for (const event of ["layout", "camera", "selection"] as const) this.emit(event);
  }

  private layOutFitted(): void {
    this.layOut(() => {
      this.fit(false);
      return null;
    });
  }

  /** Lay out again while one box keeps its position on the screen. */
  private layOutAround(path: string): void {
    const oldBox = this.byPath.get(path);
    this.layOut(() => {
      const newBox = this.byPath.get(path);
      if (!oldBox || !newBox) return null;
      const [right, down] = [newBox.x - oldBox.x, newBox.y - oldBox.y];
      this.camera.pan(-right * this.camera.k, -down * this.camera.k);
      return [right, down];
    });
  }

  redraw(shift: [number, number] | null = null): void {
    this.colourScale?.fit(this.boxes);
    const { colourScale } = this;
    const paintKey = colourScale ? `${colourScale.quantity} ${colourScale.range.join()}` : "";
    this.stage.show({ boxes: this.boxes, down: this.tree.down, paint: (box) => this.paint(box), paintKey }, shift);
  }

  /** Read the screen's new size. */
  measureScreen(): void {
    this.size = { width: Math.max(1, this.screen.clientWidth), height: Math.max(1, this.screen.clientHeight) };
  }

  /** Show the first view: the whole drawing, or on a narrow screen one long column from its start. */
  open(): void {
    const narrow = this.size.width < NARROW_PX;
    const { down, limit } = this.data.view;
    if (narrow !== this.isColumn) this.tree.setOrientation(narrow || down, narrow ? Infinity : limit);
    this.isColumn = narrow;
    this.layOut(() => {
      if (narrow) this.camera.fitWidth(rectOf(this.root));
      else this.fit(false);
      return null;
    });
  }

  fit(animate = true): void {
    this.camera.fit(rectOf(this.root), animate);
  }

  // Folding

  /** Set the mode of one box: folded, open, or one module of a stack. */
  setMode(path: string, mode: Mode): void {
    if (!this.byPath.get(path)?.view.fullPlan || !path) return;
    this.tree.setMode(path, mode);
    this.layOutAround(path);
  }

  toggle(path: string): void {
    const view = this.byPath.get(path)?.view;
    if (!view?.fullPlan) return;
    this.setMode(path, view.composed ? "folded" : view.fullPlan.sort === "stack" ? "one" : "open");
  }

  /** Open every box down to a level, unless that shows more than MAX_UNFOLDED boxes. */
  unfold(level: number, all = false): void {
    const count = this.tree.count(level, all);
    if (count > MAX_UNFOLDED && count > this.root.view.boxCount) {
      const warning = `That would show ${plural(count, "box")}. Up to ${groupDigits(MAX_UNFOLDED)} are unfolded at once:`;
      this.showMessage(`${warning} open modules one by one, or search.`);
      return;
    }
    this.tree.unfold(level, all);
    this.layOutFitted();
  }

  setDirection(down: boolean): void {
    if (down === this.tree.down) return;
    this.tree.down = down;
    this.tree.fit();
    this.layOutFitted();
  }

  /** Keep space for pictures in the boxes of these leaves; a height of 0 takes it back. */
  setPictureSpace(leaves: ReadonlySet<number>, height: number): void {
    reservePictureSpace(this.data, leaves, height);
    this.painter.clearTemplates();
    this.tree.resize();
    this.data.view.limit = this.tree.limit;
    if (this.boxes.length) this.open();
  }

  // Selection

  select(path: string): void {
    if (path && !this.byPath.has(path)) return;
    this.selected = path;
    this.emit("selection");
  }

  hover(path: string): void {
    if (path === this.hovered) return;
    this.hovered = path;
    this.emit("hover");
  }

  /** Open the boxes around a hidden box, select it and centre it. */
  show(path: string): void {
    if (!this.byPath.has(path)) {
      this.tree.reveal(path);
      this.layOutAround(visiblePath(this.byPath, path));
    }
    const box = this.byPath.get(visiblePath(this.byPath, path));
    if (!box) return;
    this.select(box.path);
    this.camera.centre(rectOf(box));
  }

  // Colours and descriptions

  colourBy(quantity: string): void {
    const values = this.details?.overlays[quantity];
    this.colourScale = values
      ? new ColourScale(quantity, values, this.data.colours.ramp, this.data.colours.strange)
      : null;
    this.redraw();
    for (const event of ["layout", "selection", "colour"] as const) this.emit(event);
  }

  paint(box: PlacedBox): Paint | null {
    return this.colourScale?.paint(box, this.data.leaves[box.view.part.leaf].look) ?? null;
  }

  /** Describe a box in words, for screen readers. */
  describe(box: PlacedBox): string {
    const { view } = box;
    const leaf = this.data.leaves[view.part.leaf];
    const state = view.fullPlan ? (view.composed ? "open" : "folded") : "";
    const times = view.fullPlan && view.fullPlan.times > 1 ? `${view.fullPlan.times} times` : "";
    return [view.name, leaf.kind, times, leaf.body, state].filter(Boolean).join(", ");
  }
}

/** The innermost drawn box on the way to a path. */
export function visiblePath(byPath: Map<string, PlacedBox>, path: string): string {
  while (path && !byPath.has(path)) path = parentPath(path);
  return path;
}

/** The path of the parent box. */
export function parentPath(path: string): string {
  return path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
}
