// The network in 3D; it renders only when something has changed.
import { DataTexture, Group, LinearFilter, Mesh, Raycaster, Scene as World, Vector2, Vector3, WebGLRenderer, type Ray } from "three"; // prettier-ignore
import type { Net } from "../../messages";
import { Flight } from "../../../camera/flight";
import { arrowPoints, buildArrows } from "./arrows";
import { OrbitCamera, type Pose } from "./orbit_camera";
import { findColourMap, buildRamp } from "../values/colour_maps";
import { cellsOf, type FrameLayout } from "./unit_grid";
import type { LabelBox } from "./label_placement";
import { Labels, type LabelRequest } from "./labels";
import { leanStack, canLean } from "./stack_lean";
import { footprint, scenePoint } from "./layer_pose";
import { LayerMesh, type ScenePalette } from "./layer_mesh";
import { CORNERS, sortFarFirst, minLevelGap, diagonalOf } from "./scene_geometry";
import { NARROW_PX, labelRequests, type LabelViewport } from "./label_requests";
import { cellCentre, pick, type PickResult } from "./picking";
import { computeRange, layerSetting, type Frame, type RangeSetting } from "../values/value_ranges";
import type { Fault } from "../fold/faults";
import type { SlabColour } from "../../colouring/slab_colours";
import type { SceneItem, VisibleNet } from "../fold/visible_net";
import { FrameBoxes } from "./frame_boxes";
import { TokenLabels, tokenLabelsOf } from "./token_labels";
import type { HeadNames } from "../../token_names";

export const MAX_BARS = 20_000; // over all layers, in mode "auto"
const MAX_LAYER_BARS = 100_000;
const MAX_PIXEL_RATIO = 2; // device pixels per pixel
const [BUTTONS_PX, LABEL_PX] = [40, 34]; // what buttons and a name of two lines take at the upper edge
const CROWDED_LAYERS = 60; // number of layers from which names are short and must not cover anything
const HOME_ANGLES = { azimuth: 0.2, elevation: 0.44 };
const FACE_ANGLES = { azimuth: 0, elevation: 0.06 }; // in front of what stands upright

/** A unit, by its layer's name and its index. */
export interface Unit {
  layer: string;
  unit: number;
}

/** The appearance of the scene, apart from the values. */
export interface Appearance {
  palette: ScenePalette;
  dark: boolean;
  labels: boolean;
  arrows: boolean;
  mode: string; // "auto", "bars", "cells", "raster"
  height: number; // bar height factor, 1 by default
  lean: boolean; // whether a stack leans to fill the window
}

/** The 3D scene. */
export class Scene {
  readonly canvas: HTMLCanvasElement;
  readonly orbit: OrbitCamera;
  readonly layerMeshes = new Map<string, LayerMesh>();
  frames: ReadonlyMap<string, Frame> = new Map();
  ranges = new Map<string, [number, number]>();
  faults: ReadonlyMap<string, Fault> = new Map();
  tints: ReadonlyMap<string, SlabColour> | null = null;
  drawCount = 0; // number of renders so far
  onLabelClick: (key: string) => void = () => {};
  private readonly renderer: WebGLRenderer;
  private readonly world = new World();
  private readonly root = new Group();
  private readonly ramps = new Map<string, DataTexture>(); // by colour map
  private readonly labels: Labels;
  private readonly marker: HTMLElement;
  readonly tokens: TokenLabels;
  private headNames: (shape: readonly number[]) => HeadNames = () => ({ rows: null, columns: null });
  private readonly resizeObserver: ResizeObserver;
  private arrows: Mesh | null = null;
  private arrowPath: Vector3[] = []; // points along the arrows
  private net: Net | null = null;
  private items: ReadonlyMap<string, SceneItem> = new Map();
  private focus: readonly string[] = []; // layers that the camera is fitted to; empty: all
  private readonly boxes = new FrameBoxes();
  private appearance: Appearance;
  private setting: RangeSetting | null = null;
  private selected: Unit | null = null;
  private hovered: PickResult | null = null;
  private frameRequest = 0;
  private readonly flight = new Flight<Pose>((pose) => this.orbit.set(pose));
  private leanAspect = 1; // the window aspect that the stack leans for
  private isUntouched = true; // until the user moves the camera, it is fitted again on resize
  private readonly drawCallbacks: (() => void)[] = [];

  constructor(
    private readonly host: HTMLElement,
    overlay: HTMLElement,
    appearance: Appearance,
    software: boolean,
  ) {
    this.appearance = appearance;
    // Preserved after rendering: the browser may composite the canvas again long after, since nothing is rendered
    // without need.
    const options = { antialias: !software, alpha: true, preserveDrawingBuffer: true } as const;
    this.renderer = new WebGLRenderer({ ...options, powerPreference: "high-performance" });
    this.renderer.setClearColor(0, 0);
    this.canvas = this.renderer.domElement;
    this.orbit = new OrbitCamera(() => this.requestDraw());
    this.world.add(this.root);
    this.labels = new Labels(overlay, (key) => this.onLabelClick(key));
    this.marker = document.createElement("div");
    this.marker.className = "network-marker";
    this.marker.hidden = true;
    host.append(this.canvas, this.marker);
    this.tokens = new TokenLabels(host);
    this.canvas.addEventListener("webglcontextrestored", () => this.requestDraw());
    this.resizeObserver = new ResizeObserver(() => this.resize());
    this.resizeObserver.observe(host);
    this.resize();
  }

  /** Show another network, or the same one folded otherwise; the camera goes to the layers in `focus`. */
  setNet(visible: VisibleNet | null, focus: readonly string[] = []): void {
    const net = visible?.net ?? null;
    const isSameNet = this.net !== null && net !== null && this.net.variables === net.variables;
    for (const view of this.layerMeshes.values()) view.dispose();
    this.layerMeshes.clear();
    this.root.clear();
    this.labels.clear();
    this.frames = new Map();
    this.ranges.clear();
    [this.net, this.items, this.focus] = [net, visible?.items ?? new Map(), focus];
    this.boxes.setFrames(visible?.frames ?? []);
    this.root.add(this.boxes.group);
    for (const placed of net?.layers ?? []) {
      const view = new LayerMesh({ ...placed }, this.items.get(placed.layer.name)?.count);
      view.setPalette(this.appearance.palette);
      view.setTint(this.tints ? (this.tints.get(placed.layer.name)?.fill ?? "") : null);
      this.layerMeshes.set(placed.layer.name, view);
      this.root.add(view.group);
    }
    this.leanLayers();
    this.updateForms();
    this.updateHighlights();
    this.isUntouched = true;
    this.moveTo(this.home(), isSameNet);
  }

  /** Show a complete state; layers without a frame have no values. */
  setFrames(frames: ReadonlyMap<string, Frame>): void {
    this.frames = frames;
    for (const [name, view] of this.layerMeshes) {
      const frame = frames.get(name) ?? null;
      if (frame || view.frame) view.setFrame(frame);
    }
    this.updateForms();
    this.updateRanges();
    this.updateHighlights();
  }

  /** Mark layers with something wrong. */
  setFaults(faults: ReadonlyMap<string, Fault>): void {
    this.faults = faults;
    for (const [name, view] of this.layerMeshes) view.setFault(faults.get(name) ?? null);
    this.requestDraw();
  }

  /** Colour each layer by one colour in place of its values; null: by its values. */
  setTints(tints: ReadonlyMap<string, SlabColour> | null): void {
    this.tints = tints;
    for (const [name, view] of this.layerMeshes) view.setTint(tints ? (tints.get(name)?.fill ?? "") : null);
    this.requestDraw();
  }

  /** Set the names of tokens at attention heads. */
  setHeadNames(headNames: (shape: readonly number[]) => HeadNames): void {
    this.headNames = headNames;
    this.requestDraw();
  }

  setRange(setting: RangeSetting): void {
    this.setting = setting;
    this.updateRanges();
  }

  setAppearance(appearance: Appearance): void {
    const previous = this.appearance;
    this.appearance = appearance;
    if (previous.palette !== appearance.palette) {
      for (const view of this.layerMeshes.values()) view.setPalette(appearance.palette);
      this.boxes.update(this.layerMeshes, appearance.palette);
    }
    if (previous.dark !== appearance.dark || previous.arrows !== appearance.arrows) this.drawArrows();
    this.updateForms();
    if (previous.lean !== appearance.lean) this.reset();
    this.requestDraw();
  }

  select(unit: Unit | null): void {
    this.selected = unit;
    this.updateHighlights();
  }

  hover(picked: PickResult | null): void {
    if (picked?.layer === this.hovered?.layer && picked?.cell === this.hovered?.cell) return;
    this.hovered = picked;
    this.updateHighlights();
  }

  /** The unit at a point of the canvas. */
  pickAt(x: number, y: number): PickResult | null {
    return pick(this.visibleMeshes(), this.rayAt(x, y))?.target ?? null;
  }

  /** Zoom in (factor below 1) on what lies at a point of the canvas. */
  zoom(factor: number, x: number, y: number): void {
    const ray = this.rayAt(x, y);
    const hit = pick(this.visibleMeshes(), ray);
    const { pose } = this.orbit;
    const middle = new Vector3(pose.x, pose.y, pose.z).sub(ray.origin); // without a hit: at the target's depth
    const forward = this.orbit.camera.getWorldDirection(new Vector3());
    const distance = hit?.distance ?? middle.dot(forward) / Math.max(0.1, ray.direction.dot(forward));
    this.markTouched();
    this.orbit.zoom(factor, ray.at(distance, new Vector3()));
  }

  /** The position of a unit on the canvas; null if it is not visible. */
  project({ layer, unit }: Unit): { x: number; y: number } | null {
    const view = this.layerMeshes.get(layer);
    if (!view || unit < 0 || unit >= view.placed.units) return null;
    const cell = view.cellOf(unit);
    return cell < 0 ? null : this.onScreen(cellCentre(view, cell));
  }

  /** The layout of a layer's frame. */
  layoutOf(layer: string): FrameLayout | null {
    return this.layerMeshes.get(layer)?.layout ?? null;
  }

  /** Fit the scene into the window, keeping the angles. */
  fit(): void {
    const { azimuth, elevation } = this.orbit.pose;
    this.focus = [];
    this.moveTo(this.fitPose(azimuth, elevation), true);
    this.isUntouched = false;
  }

  /** Return to the initial pose. */
  reset(): void {
    this.isUntouched = true;
    this.leanLayers();
    this.moveTo(this.home(), true);
  }

  /** Move so that a layer and its neighbours fill the window; attention heads alone, face-on. */
  flyTo(layer: string): void {
    const names = [...this.layerMeshes.keys()];
    const index = names.indexOf(layer);
    if (index < 0) return;
    const isStanding = this.layerMeshes.get(layer)!.placed.stands;
    this.focus = isStanding ? [layer] : names.slice(Math.max(0, index - 1), index + 2);
    this.isUntouched = true;
    this.moveTo(this.home(), true);
  }

  /** Move back from a layer to the whole scene; where the camera is at none, nothing moves. */
  leaveFocus(): void {
    if (!this.focus.length || this.focus.length === this.layerMeshes.size) return;
    this.focus = [];
    this.reset();
  }

  /** Note that the user moves the camera. */
  markTouched(): void {
    this.flight.cancel();
    this.isUntouched = false;
  }

  /** Move to a pose, animated unless the user prefers reduced motion. */
  moveTo(pose: Pose, animate: boolean): void {
    this.flight.start(this.orbit.pose, pose, animate);
  }

  /** Request a render; `done` is called after it. */
  requestDraw(done?: () => void): void {
    if (done) this.drawCallbacks.push(done);
    this.frameRequest ||= requestAnimationFrame(() => this.draw());
  }

  /** GPU memory in use. */
  memory(): { textures: number; geometries: number; programs: number } {
    const { memory, programs } = this.renderer.info;
    return { textures: memory.textures, geometries: memory.geometries, programs: programs?.length ?? 0 };
  }

  dispose(): void {
    cancelAnimationFrame(this.frameRequest);
    this.flight.cancel();
    this.resizeObserver.disconnect();
    this.setNet(null);
    cancelAnimationFrame(this.frameRequest);
    for (const ramp of this.ramps.values()) ramp.dispose();
    this.renderer.dispose();
    this.renderer.forceContextLoss();
    this.canvas.remove();
    this.marker.remove();
    this.tokens.remove();
  }

  /** Render now. */
  draw(): void {
    cancelAnimationFrame(this.frameRequest);
    this.frameRequest = 0;
    sortFarFirst([...this.layerMeshes.values()], this.orbit.camera.position).forEach((view, n) =>
      view.setOrder(10 + 4 * n),
    );
    const { faced } = this;
    if (this.arrows) this.arrows.visible = !faced;
    this.boxes.group.visible = !faced;
    const drawn = new Set(this.visibleMeshes());
    for (const view of this.layerMeshes.values()) view.group.visible = drawn.has(view);
    this.renderer.render(this.world, this.orbit.camera);
    this.drawCount++;
    this.writeLabels();
    this.placeMarker();
    for (const done of this.drawCallbacks.splice(0)) done();
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (!width || !height) return; // another tab is open
    this.renderer.setPixelRatio(Math.min(MAX_PIXEL_RATIO, devicePixelRatio || 1));
    this.renderer.setSize(width, height, false);
    this.orbit.resize(width, height);
    if (this.isUntouched && this.net) {
      const isReshaped = Math.abs(Math.log(this.aspect() / this.leanAspect)) > Math.log(1.5); // opening a side panel moves no layer
      if (isReshaped) this.leanLayers();
      this.moveTo(this.home(), this.drawCount > 0 && !isReshaped);
    }
    if (this.drawCount) this.draw(); // at once: resizing cleared the canvas
  }

  // Lean the stack so that it fills the window.
  private leanLayers(): void {
    const net = this.net;
    if (!net) return;
    this.leanAspect = this.aspect();
    const isLeaning = this.appearance.lean && canLean(net);
    const places = isLeaning
      ? leanStack(net.layers, this.leanAspect, HOME_ANGLES.azimuth, HOME_ANGLES.elevation)
      : null;
    net.layers.forEach(({ layer, place }, n) => this.layerMeshes.get(layer.name)?.moveTo(places?.[n] ?? place));
    this.orbit.sceneSize = diagonalOf(this.corners());
    this.boxes.update(this.layerMeshes, this.appearance.palette);
    this.drawArrows();
  }

  private drawArrows(): void {
    if (this.arrows) {
      this.root.remove(this.arrows);
      this.arrows.geometry.dispose();
      (this.arrows.material as { dispose(): void }).dispose();
    }
    const layers = [...this.layerMeshes.values()].map(({ placed }) => footprint(placed));
    const net = this.net && this.appearance.arrows ? { ...this.net, layers } : null;
    this.arrows = net && buildArrows(net, this.appearance.dark, diagonalOf(this.corners(this.focus)) * 0.00095);
    this.arrowPath = net && this.layerMeshes.size <= CROWDED_LAYERS ? arrowPoints(net) : [];
    if (this.arrows) this.arrows.renderOrder = 5;
    if (this.arrows) this.root.add(this.arrows);
    this.requestDraw();
  }

  // Choose bars or cells for each layer, and the bar height.
  private updateForms(): void {
    let units = 0;
    for (const view of this.layerMeshes.values()) units += cellsOf(view.layout.sent);
    const space = minLevelGap([...this.layerMeshes.values()]);
    for (const view of this.layerMeshes.values()) {
      const raster = view.frame?.head.raster ?? false;
      const isSmall = cellsOf(view.layout.sent) <= MAX_LAYER_BARS;
      const wantsBars = this.appearance.mode === "bars" || (this.appearance.mode === "auto" && units <= MAX_BARS);
      const isPicture = this.appearance.mode === "auto" && (view.picture !== null || view.placed.stands);
      view.setForm(wantsBars && isSmall && !raster && !isPicture ? "bars" : "cells");
      view.setBarHeight(Math.min(0.36 * space, 4 * Math.max(...view.cellSize())) * this.appearance.height);
    }
    this.requestDraw();
  }

  private updateRanges(): void {
    if (!this.setting) return;
    const globalRange = computeRange([...this.frames.values()], this.setting);
    this.ranges.clear();
    for (const [name, view] of this.layerMeshes) {
      const isPerLayer = this.setting.mode === "layer" && view.frame;
      const setting = layerSetting(this.setting, view.placed.layer, view.frame?.head.variable ?? "");
      const range = isPerLayer ? computeRange([view.frame!], setting) : globalRange;
      view.setRange(range, this.rampOf(setting.map), findColourMap(setting.map).diverging);
      this.ranges.set(name, range);
    }
    this.requestDraw();
  }

  private rampOf(map: string): DataTexture {
    let ramp = this.ramps.get(map);
    if (ramp) return ramp;
    ramp = new DataTexture(new Uint8Array(buildRamp(findColourMap(map))), 256, 1);
    ramp.minFilter = ramp.magFilter = LinearFilter;
    ramp.needsUpdate = true;
    this.ramps.set(map, ramp);
    return ramp;
  }

  private updateHighlights(): void {
    for (const [name, view] of this.layerMeshes) {
      const selectedCell = this.selected?.layer === name ? view.cellOf(this.selected.unit) : -1;
      view.highlight(selectedCell, this.hovered?.layer === name ? this.hovered.cell : -1);
    }
    this.requestDraw();
  }

  private home(): Pose {
    const { azimuth, elevation } = this.faced ? FACE_ANGLES : HOME_ANGLES;
    return this.fitPose(azimuth, elevation);
  }

  // Attention heads that are looked at face-on, alone: what is around them would lie behind their names and the buttons.
  private get faced(): LayerMesh | null {
    const mesh = this.isUntouched && this.focus.length === 1 ? this.layerMeshes.get(this.focus[0]) : null;
    return mesh?.placed.stands ? mesh : null;
  }

  private visibleMeshes(): LayerMesh[] {
    return this.faced ? [this.faced] : [...this.layerMeshes.values()];
  }

  private fitPose(azimuth: number, elevation: number): Pose {
    const names = this.focus.length ? this.focus : [...this.layerMeshes.keys()];
    const points = [...this.corners(names), ...this.boxes.corners(names)];
    return this.orbit.fitPose(points, azimuth, elevation, this.insets());
  }

  // The margins taken by names, buttons and the legend.
  private insets(): { left: number; right: number; top: number; bottom: number } {
    const { clientWidth: width, clientHeight: height } = this.host;
    const { faced } = this;
    if (faced) {
      const [tops, bottoms] = [true, false].map((isAbove) => this.overlayBoxes().filter(({ top }) => top < height / 2 === isAbove)); // prettier-ignore
      const above = Math.max(0, ...tops.map((box) => box.top + box.height));
      const names = this.headNames(faced.placed.layer.shape);
      const isWide = width > NARROW_PX; // on phones cells are too small for names
      const [top, right] = [above + (names.columns && isWide ? 48 : 8), names.rows && isWide ? 72 : 8];
      const legend = Math.max(0, ...bottoms.map(({ top }) => height - top));
      return { left: 8, right, top: Math.min(top, height * 0.5), bottom: Math.min(legend + 24, height * 0.3) };
    }
    const isWide = width > 560;
    const left = this.appearance.labels && isWide ? Math.min(110, width * 0.1) : 8;
    const above = isWide ? (this.appearance.labels ? LABEL_PX : 0) : BUTTONS_PX; // a second row of buttons on phones
    return { left, right: 8, top: Math.min(BUTTONS_PX + above, height * 0.18), bottom: Math.min(92, height * 0.18) };
  }

  // Where buttons, breadcrumbs and the legend lie over the scene.
  private overlayBoxes(): LabelBox[] {
    const overlays = this.host.parentElement?.querySelectorAll<HTMLElement>(":scope > :is(.network-legend, .network-over, .network-way)") ?? []; // prettier-ignore
    return [...overlays]
      .map(({ offsetLeft: left, offsetTop: top, offsetWidth: width, offsetHeight: height }) => ({
        left,
        top,
        width,
        height,
      })) // prettier-ignore
      .filter(({ width }) => width > 0);
  }

  private aspect(): number {
    const { left, right, top, bottom } = this.insets();
    return Math.max(1, this.host.clientWidth - left - right) / Math.max(1, this.host.clientHeight - top - bottom);
  }

  private corners(names: readonly string[] = []): Vector3[] {
    const corners: Vector3[] = [];
    const views = names.flatMap((name) => this.layerMeshes.get(name) ?? []);
    for (const { placed, barHeight, form } of views.length ? views : this.layerMeshes.values()) {
      const [wide, deep] = [placed.size[0] / 2 + 0.6, placed.size[1] / 2 + 0.6];
      const high = form === "bars" ? barHeight : 0.1;
      for (const [a, b, c] of CORNERS) corners.push(scenePoint(placed, a * wide, b * high, c * deep));
    }
    return corners;
  }

  private rayAt(x: number, y: number): Ray {
    const caster = new Raycaster();
    const deviceCoords = new Vector2((x / this.host.clientWidth) * 2 - 1, 1 - (y / this.host.clientHeight) * 2);
    caster.setFromCamera(deviceCoords, this.orbit.camera);
    return caster.ray;
  }

  private onScreen(hover: Vector3): { x: number; y: number } | null {
    const projected = hover.clone().project(this.orbit.camera);
    if (!(projected.z < 1)) return null; // behind the camera
    return { x: ((projected.x + 1) / 2) * this.host.clientWidth, y: ((1 - projected.y) / 2) * this.host.clientHeight };
  }

  // Place a ring around the selected unit if its cell is too small to be seen as green.
  private placeMarker(): void {
    const view = this.selected && this.layerMeshes.get(this.selected.layer);
    const spot = this.selected && this.project(this.selected);
    const size = view ? Math.min(...view.cellSize()) / this.orbit.worldPerPixel() : 0;
    this.marker.hidden = !spot || size > 9;
    if (spot) this.marker.style.transform = `translate(${spot.x}px, ${spot.y}px)`;
  }

  private writeLabels(): void {
    const requests: LabelRequest[] = [];
    const { clientWidth: width, clientHeight: height } = this.host;
    const onScreen = (point: Vector3): { x: number; y: number } | null => this.onScreen(point);
    const isCrowded = this.layerMeshes.size > CROWDED_LAYERS;
    const viewport: LabelViewport = {
      width,
      height,
      worldPerPixel: this.orbit.worldPerPixel(),
      onScreen,
      isCrowded,
      hasValues: this.frames.size > 0,
    };
    const views = this.visibleMeshes();
    for (const view of this.appearance.labels ? views : []) {
      const { name } = view.placed.layer;
      requests.push(
        ...labelRequests(
          view,
          viewport,
          this.selected?.layer === name || this.hovered?.layer === name,
          this.items.get(name),
          this.faults.get(name),
          this.tints?.get(name)?.text,
        ),
      );
    }
    if (this.appearance.labels && !this.faced) requests.push(...this.boxes.labelRequests(onScreen, width < NARROW_PX));
    const occupied = this.overlayBoxes();
    const heads = views.filter(({ placed }) => placed.layer.view === "heads");
    const tokens = heads.flatMap((mesh) => tokenLabelsOf(mesh, this.headNames(mesh.placed.layer.shape), onScreen));
    this.tokens.show(this.appearance.labels ? tokens : [], width, height);
    occupied.push(...this.tokens.boxes());
    const arrows = this.arrowPath.flatMap((point) => onScreen(point) ?? []);
    this.labels.show(requests, { width, height, occupied, arrows, isCrowded });
  }
}
