// The presenter between the store and the scene: collects frames until a state is complete, then shows it.
import type { FrameHead, Moment, Net, Shown, Variable } from "../messages";
import { Signal, type Selection, type Store } from "../store";
import { theme } from "../theme";
import { headNames, type HeadNames } from "../token_names";
import type { Pose } from "./scene/orbit_camera";
import { FlatScene } from "./scene/flat_scene";
import type { ScenePalette } from "./scene/layer_mesh";
import { detectWebgl } from "./scene/scene_geometry";
import type { PickResult } from "./scene/picking";
import { valueOf, type Frame, type RangeSetting } from "./values/value_ranges";
import { Scene, type Appearance, type Unit } from "./scene/scene";
import { saveSettings, rangeSetting, loadSettings, type Settings } from "./settings";
import { indexOfPosition } from "./values/timeline";
import { ExactValues, type ExactValue } from "./values/exact_values";
import { LayerNumbers } from "../colouring/layer_amounts";
import { slabColours, type SlabColours } from "../colouring/slab_colours";
import { Folding } from "./fold/folding";
import { passOrder } from "../faults/layer_faults";
import { findFaults, nonFiniteLayers } from "./fold/faults";
import { lastMember, type TreeNode } from "./fold/scene_tree";
import type { VisibleNet } from "./fold/visible_net";

/** The state on the screen. */
export interface DisplayedState {
  look: number;
  moment: number; // -1: nothing
  variable: string;
  item: number;
  missing: ReadonlyMap<string, string>; // layers without a value -> the reason
}

/** The unit under the pointer. */
export interface HoverTarget {
  target: PickResult;
  x: number;
  y: number;
  exact: ExactValue | null; // null until the answer arrives
  approximate: number | undefined; // decoded from the byte; undefined if there is no data
}

const NOTHING_DISPLAYED: DisplayedState = { look: -1, moment: -1, variable: "", item: 0, missing: new Map() };
const HOVER_WAIT_MS = 60;
const MAX_NAMES_LENGTH = 30_000; // of open layers in a message, which may have 64 KB; beyond, all are asked for

/** State of the Network tab that is not in the store. */
export class NetworkPresenter {
  readonly settings = new Signal<Settings>(loadSettings());
  readonly displayed = new Signal<DisplayedState>(NOTHING_DISPLAYED);
  readonly hovered = new Signal<HoverTarget | null>(null);
  readonly isPlaying = new Signal(false);
  readonly numbers: LayerNumbers;
  readonly colours = new Signal<SlabColours | null>(null); // of slabs that are coloured by a number
  readonly folding = new Folding();
  searchField: HTMLInputElement | null = null; // the field that finds a layer
  readonly isContextLost = new Signal(false); // the browser dropped the WebGL context, and may restore it
  readonly scene: Scene | FlatScene;
  readonly webgl: boolean;
  readonly values: ExactValues;
  private readonly unsubscribers: (() => void)[] = [];
  private pendingFrames = new Map<string, Frame>();
  private pendingState = ""; // look number and moment of the pending frames
  private timer = 0;
  private isSelectionPending = false; // made on another tab
  private shownStep = Infinity; // of the displayed moment; where its message has not come yet, that of the one before
  private shownMoments: readonly Moment[] = []; // the list of moments at the time the displayed state was sent

  constructor(
    readonly store: Store,
    private readonly host: HTMLElement,
    overlay: HTMLElement,
    readonly wasContextLost = false, // and not restored: nothing is drawn in 3D
  ) {
    const { webgl, software } = wasContextLost ? { webgl: false, software: true } : detectWebgl();
    this.webgl = webgl;
    this.scene = webgl ? new Scene(host, overlay, this.appearance(), software) : new FlatScene(host, this.appearance());
    if (this.scene instanceof Scene) this.scene.onLabelClick = (key) => this.clickLabel(key);
    this.values = new ExactValues(store);
    this.numbers = new LayerNumbers(store);
    this.scene.canvas.addEventListener("webglcontextlost", () => this.isContextLost.set(true));
    this.scene.canvas.addEventListener("webglcontextrestored", () => this.isContextLost.set(false));
    this.folding.visible.subscribe((visible) => this.showNet(visible));
    this.receiveNet(store.net.get());
    this.colourSlabs();
    this.scene.select(store.selection.get());
    this.unsubscribers.push(
      store.net.subscribe((net) => this.receiveNet(net)),
      store.hello.subscribe(() => this.values.clear()), // another source may reuse the moments' ids
      store.socket.onFrame((head, bytes) => this.receiveFrame(head, bytes)),
      store.onShown((shown) => this.receiveShown(shown)),
      store.selection.subscribe((unit) => this.showSelection(unit)),
      store.tab.subscribe(() => this.isSelectionPending && this.showSelection(store.selection.get())),
      store.alerts.subscribe(() => this.markFaults()),
      ...[store.colourBy, store.tables, store.alerts, this.numbers.ofPass, this.folding.visible].map((signal) =>
        (signal.subscribe as (watcher: () => void) => () => void).call(signal, () => this.colourSlabs()),
      ),
      store.viewSettings.subscribe(() => this.scene.setAppearance(this.appearance())),
      this.settings.subscribe((settings) => this.receiveSettings(settings)),
      theme.subscribe(() => this.scene.setAppearance(this.appearance())),
    );
  }

  /** The variable with this name; by default the requested one. */
  variable(name = this.store.viewSettings.get().variable): Variable | undefined {
    return this.store.net.get()?.variables.find((variable) => variable.name === name);
  }

  /** Whether the variable holds weights of the selected unit. */
  isWeight(name?: string): boolean {
    return this.variable(name)?.of === "weight";
  }

  /** How the requested values map to colours; with `displayed`, those on the screen. */
  range(displayed = false): RangeSetting {
    return rangeSetting(this.settings.get(), this.variable((displayed && this.displayed.get().variable) || undefined));
  }

  setRange(part: Partial<RangeSetting>): void {
    const name = this.store.viewSettings.get().variable;
    if (!name) return;
    const { ranges } = this.settings.get();
    this.settings.patch({ ranges: { ...ranges, [name]: { ...this.range(), ...part } } });
  }

  select(unit: Unit | null): void {
    const node = unit && this.folding.visible.get()?.items.get(unit.layer)?.node;
    const owner = node && lastMember(node);
    this.store.selection.set(unit && (owner?.children.length ? { ...unit, module: owner.key } : unit));
  }

  /** Go to a module or layer, opening what is around it; of a layer, select its first unit. */
  goTo(node: TreeNode): void {
    this.folding.reveal(node);
    const layer = node.face?.layer.name;
    if (layer && this.scene instanceof Scene) this.scene.flyTo(layer);
    if (node.sort === "layer" && layer) this.select({ layer, unit: 0 });
  }

  /** Go to an open module around, null for the whole network; a selection that is folded away, or elsewhere, ends. */
  goOut(node: TreeNode | null): void {
    this.folding.goTo(node);
    const selection = this.store.selection.get();
    if (selection && !(node && this.folding.membersOf(node).includes(selection.layer))) this.select(null);
  }

  /** Open the closed module that shows this layer; false where it is none. */
  open(layer: string): boolean {
    const item = this.folding.visible.get()?.items.get(layer);
    if (!item?.canOpen || !item.node) return false;
    this.folding.enter(item.node);
    return true;
  }

  /** Set the pointer's position; null if it left the view. */
  hoverAt(point: { x: number; y: number } | null): void {
    const target = point && this.scene.pickAt(point.x, point.y);
    this.scene.hover(target);
    if (!target || !point) return this.hovered.set(null);
    const previous = this.hovered.get();
    const isSame = previous?.target.layer === target.layer && previous.target.unit === target.unit && previous.target.column === target.column; // prettier-ignore
    this.hovered.set({
      target,
      ...point,
      exact: isSame ? previous.exact : null,
      approximate: this.approximate(target),
    });
    if (!isSame) this.scheduleValue();
  }

  /** The exact value of a unit at the displayed moment. */
  exact(unit: Unit, column = -1): Promise<ExactValue> {
    const { variable, item, moment } = this.displayed.get();
    const momentId = column < 0 ? moment : (this.momentOfColumn(unit.layer, column)?.id ?? -1);
    const selection = this.isWeight(variable) ? this.store.selection.get() : null;
    const { layer, unit: index } = unit;
    return this.values.ask({ layer, unit: index, variable, item, moment: momentId, of: selection });
  }

  /** The value that a cell's byte stands for. */
  approximate({ layer, cell }: PickResult): number | undefined {
    const frame = this.scene.frames.get(layer);
    return frame && cell >= 0 ? valueOf(frame.head, frame.bytes[cell] ?? 0) : undefined;
  }

  /** The moment of a column in a layer's raster; the last column is the displayed moment. */
  momentOfColumn(layer: string, column: number): Moment | undefined {
    const { moment } = this.displayed.get();
    const columns = this.scene.frames.get(layer)?.head.grid[3] ?? 0;
    const moments = this.shownMoments.some(({ id }) => id === moment) ? this.shownMoments : this.store.moments.get(); // its message came late
    const last = indexOfPosition(moments, { live: false, moment, isPlaying: false });
    return moments[last - (columns - 1 - column)];
  }

  /** The names of tokens at the rows and columns of heads of this shape, of the displayed item. */
  headNames(shape: readonly number[]): HeadNames {
    return headNames(this.store.net.get()?.token_names ?? [], this.displayed.get().item, shape);
  }

  pose(): Pose | null {
    return this.scene instanceof Scene ? this.scene.orbit.pose : null;
  }

  /** Describe the canvas in words. */
  summary(): string {
    const net = this.store.net.get();
    if (!net) return this.store.hello.get() ? "No network" : "Connecting";
    const units = net.layers.reduce((sum, { units }) => sum + units, 0);
    const { variable, moment } = this.displayed.get();
    const selected = this.store.selection.get();
    return [
      `${net.name || "Network"}: ${net.layers.length} layers, ${units} units, ${net.projections.length} projections`,
      moment < 0 ? "no values yet" : `${variable} at moment ${moment}`,
      selected ? `selected: ${selected.layer}, unit ${selected.unit}` : "no unit selected",
    ].join("; ");
  }

  dispose(): void {
    window.clearTimeout(this.timer);
    for (const end of this.unsubscribers) end();
    this.scene.dispose();
  }

  private appearance(): Appearance {
    const { labels, arrows, height, lean } = this.settings.get();
    const { mode } = this.store.viewSettings.get();
    return { palette: this.palette(), dark: theme.get() === "dark", labels, arrows, mode, height, lean };
  }

  private markFaults(): void {
    const visible = this.folding.visible.get();
    const { moment } = this.displayed.get();
    const isLive = this.store.viewSettings.get().moment === -1;
    this.shownStep =
      this.store.moments.get().find(({ id }) => id === moment)?.step ?? (isLive ? Infinity : this.shownStep);
    const { frames } = this.scene;
    const order = passOrder(this.store.hello.get()?.source ?? "", this.displayed.get().variable);
    if (visible) this.scene.setFaults(findFaults(visible, frames, this.store.alerts.get(), this.shownStep, order));
    this.store.setBadLayers(nonFiniteLayers(frames));
  }

  private colourSlabs(): void {
    const [quantity, visible] = [this.store.colourBy.get(), this.folding.visible.get()];
    if (quantity === "kind" && !this.colours.get()) return;
    const amounts = this.numbers.amounts()[quantity];
    const colours = quantity !== "kind" && visible ? slabColours(visible, quantity, amounts ?? new Map()) : null;
    this.colours.set(colours);
    this.scene.setTints(colours?.slabs ?? null);
    this.numbers.ask(quantity).catch((error: Error) => this.store.notice(`No numbers to colour by: ${error.message}`));
  }

  // What an alert, a table, the graph or a key selects may be folded away, or out of sight.
  private showSelection(selection: Selection | null): void {
    const isElsewhere = this.isSelectionPending;
    this.isSelectionPending = this.store.tab.get() !== "network";
    if (this.isSelectionPending) return; // it is in view when one comes here; hidden, nothing is laid out or flown
    const node = selection && this.folding.find(selection.module ?? selection.layer);
    const isFolded = node && !this.folding.visible.get()?.items.has(selection.layer);
    if (isFolded) this.folding.reveal(node);
    if (selection && this.scene instanceof Scene && (isFolded || isElsewhere)) this.scene.flyTo(selection.layer);
    this.scene.select(selection);
  }

  // The name of a closed module opens it, the title of an open one closes it.
  private clickLabel(key: string): void {
    const [name, part] = key.split("\0");
    const node = this.folding.tree?.nodes.get(name);
    if (part === "frame" && node) this.folding.leave(node);
    else this.open(name);
  }

  private netKey = "";
  private paletteKey = "";
  private cachedPalette: ScenePalette = {
    plane: "#ffffff",
    rim: "#888888",
    blank: "#999999",
    nan: "#c2187f",
    plus: "#111827",
    minus: "#00897b",
    green: "#19c37d",
    accent: "#2a6fdb",
    wrong: "#b3261e",
  };

  private palette(): ScenePalette {
    const style = getComputedStyle(this.host);
    const read = (name: string, fallback: string): string => {
      const value = style.getPropertyValue(name).trim();
      return /^#[0-9a-f]{6}$/i.test(value) ? value : fallback;
    };
    const palette: ScenePalette = {
      plane: read("--net-plane", "#eef1f5"), rim: read("--net-rim", "#aab4c0"), blank: read("--net-blank", "#a2a8b0"),
      nan: read("--nan", "#c2187f"), plus: read("--plus", "#111827"), minus: read("--minus", "#00897b"),
      green: read("--net-green", "#12b76a"), accent: read("--net-accent", "#2a6fdb"), wrong: read("--bad", "#b3261e"),
    }; // prettier-ignore
    const text = JSON.stringify(palette);
    if (text !== this.paletteKey) [this.paletteKey, this.cachedPalette] = [text, palette];
    return this.cachedPalette;
  }

  // Receiving the same network again, after a reconnect or from a recording, keeps the camera.
  private receiveNet(net: Net | null): void {
    const text = JSON.stringify(net);
    if (text === this.netKey) return;
    this.netKey = text;
    this.values?.clear();
    this.folding.setNet(net);
  }

  private showNet(visible: VisibleNet | null): void {
    this.pendingFrames = new Map();
    this.displayed.set(NOTHING_DISPLAYED);
    this.hovered.set(null);
    this.scene.setNet(visible, this.folding.membersOf(this.folding.focus.get()));
    this.scene.setRange(this.range());
    const all = this.store.net.get()?.layers.length ?? 0;
    const names = visible?.net.layers.map(({ layer }) => layer.name) ?? [];
    this.store.forgetLook(); // the scene is empty: its values must come again, also where the same layers are open
    const isShort = names.length < all && names.join().length < MAX_NAMES_LENGTH;
    this.store.openLayers.set(isShort ? names : []);
  }

  private receiveSettings(settings: Settings): void {
    saveSettings(settings);
    this.scene.setAppearance(this.appearance());
    this.scene.setRange(this.range(true));
  }

  // A frame of an earlier look is stale; one of another moment starts another state.
  private receiveFrame(head: FrameHead, bytes: Uint8Array): void {
    if (head.look !== this.store.lookNumber) return;
    const state = `${head.look} ${head.moment}`;
    if (state !== this.pendingState) this.pendingFrames = new Map();
    this.pendingState = state;
    this.pendingFrames.set(head.layer, { head, bytes });
  }

  private receiveShown({ look, moment, missing: names, why }: Shown): void {
    const missing = new Map(names.map((name, n) => [name, why[n] ?? ""]));
    const isAway = this.store.tab.get() !== "network"; // only the inspector looks on
    if (isAway || look !== this.store.lookNumber) return void this.store.send({ kind: "seen", look, moment }); // acknowledge, so that the server sends the next
    const frames = this.pendingFrames;
    if (`${look} ${moment}` !== this.pendingState) frames.clear(); // no frame of this state arrived
    [this.pendingFrames, this.pendingState] = [new Map<string, Frame>(), ""];
    this.shownMoments = this.store.moments.get();
    const { variable, item } = this.store.viewSettings.get();
    this.scene.setRange(this.range());
    this.scene.setFrames(frames);
    this.displayed.set({ look, moment: frames.size || missing.size ? moment : -1, variable, item, missing });
    this.markFaults();
    if (this.scene instanceof Scene) this.scene.setHeadNames((shape) => this.headNames(shape));
    if (this.hovered.get()) this.refreshHover();
    this.scene.requestDraw(() => this.store.send({ kind: "seen", look, moment }));
  }

  private refreshHover(): void {
    const { target, x, y } = this.hovered.get()!;
    this.hovered.set({ target, x, y, exact: null, approximate: this.approximate(target) });
    this.scheduleValue();
  }

  // Debounced: a pointer that crosses a layer would request hundreds of values.
  private scheduleValue(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.fetchValue(), HOVER_WAIT_MS);
  }

  private async fetchValue(): Promise<void> {
    const hovered = this.hovered.get();
    if (!hovered || hovered.target.unit < 0 || this.displayed.get().moment < 0) return;
    const { layer, unit, column } = hovered.target;
    const exact = await this.exact({ layer, unit }, column).catch(() => null);
    const current = this.hovered.get();
    if (exact && current?.target.layer === layer && current.target.unit === unit && current.target.column === column) {
      this.hovered.set({ ...current, exact });
    }
  }
}
