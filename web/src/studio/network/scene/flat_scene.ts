// The network as flat cells on a 2D canvas, for browsers without WebGL.
import type { Net, PlacedLayer } from "../../messages";
import { nonFiniteKind } from "../../non_finite";
import { findColourMap, parseColour, buildRamp } from "../values/colour_maps";
import {
  sentCellFraction,
  cellsOf,
  layoutOf,
  planeCellUnder,
  cellOfUnit,
  sentCellOf,
  type UnitGrid,
  type FrameLayout,
} from "./unit_grid";
import { pickResult, type PickResult } from "./picking";
import { pictureOf, pixelValues, sentPixels, type RgbPicture } from "./rgb_picture";
import { computeRange, fractionIn, layerSetting, valueOf, type Frame, type RangeSetting } from "../values/value_ranges";
import type { Appearance, Unit } from "./scene";
import type { SlabColour } from "../../colouring/slab_colours";
import type { Fault } from "../fold/faults";
import type { SceneItem, VisibleNet } from "../fold/visible_net";

const TITLE_PX = 18; // pixels above each layer
const SPACING_PX = 22;
const LEGEND_PX = 96; // kept free below, whatever the legend says: layers must not move when it grows
const MIN_FREE_PX = 120; // below, what lies over the picture may cover it

interface Plate {
  placed: PlacedLayer;
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The 2D counterpart of `Scene`, without a camera. */
export class FlatScene {
  readonly canvas = document.createElement("canvas");
  frames: ReadonlyMap<string, Frame> = new Map();
  ranges = new Map<string, [number, number]>();
  drawCount = 0;
  faults: ReadonlyMap<string, Fault> = new Map();
  tints: ReadonlyMap<string, SlabColour> | null = null;
  private spaceKey = "";
  private readonly resizeObserver: ResizeObserver;
  private plates: Plate[] = [];
  private net: Net | null = null;
  private items: ReadonlyMap<string, SceneItem> = new Map();
  private setting: RangeSetting | null = null;
  private selected: Unit | null = null;
  private frameRequest = 0;
  private readonly drawCallbacks: (() => void)[] = [];

  constructor(
    private readonly host: HTMLElement,
    private appearance: Appearance,
  ) {
    host.append(this.canvas);
    this.resizeObserver = new ResizeObserver(() => this.resize());
    this.resizeObserver.observe(host);
    this.resize();
  }

  setNet(visible: VisibleNet | null): void {
    this.net = visible?.net ?? null;
    this.items = visible?.items ?? new Map();
    this.frames = new Map();
    this.arrange();
  }

  setFrames(frames: ReadonlyMap<string, Frame>): void {
    this.frames = frames;
    this.updateRanges();
  }

  setRange(setting: RangeSetting): void {
    this.setting = setting;
    this.updateRanges();
  }

  setAppearance(appearance: Appearance): void {
    this.appearance = appearance;
    this.requestDraw();
  }

  select(unit: Unit | null): void {
    this.selected = unit;
    this.requestDraw();
  }

  hover(): void {}

  /** Mark layers with something wrong. */
  setFaults(faults: ReadonlyMap<string, Fault>): void {
    this.faults = faults;
    this.requestDraw();
  }

  /** Colour each layer by one colour in place of its values; null: by its values. */
  setTints(tints: ReadonlyMap<string, SlabColour> | null): void {
    this.tints = tints;
    this.requestDraw();
  }

  pickAt(x: number, y: number): PickResult | null {
    const plate = this.plates.find(({ left, top, width, height }) => x >= left && y >= top && x < left + width && y < top + height); // prettier-ignore
    if (!plate) return null;
    const { placed } = plate;
    const [layout, frame] = [this.layout(plate), this.frames.get(placed.layer.name) ?? null];
    const cell = planeCellUnder(layout, (x - plate.left) / plate.width, (y - plate.top) / plate.height);
    return pickResult({ placed, frame, layout }, cell);
  }

  project({ layer, unit }: Unit): { x: number; y: number } | null {
    const plate = this.plates.find(({ placed }) => placed.layer.name === layer);
    const raster = this.frames.get(layer)?.head.raster; // in a raster a unit is a row
    if (!plate || raster || unit < 0 || unit >= plate.placed.units) return null;
    const layout = this.layout(plate);
    const [left, top] = sentCellFraction(layout, sentCellOf(layout, cellOfUnit(plate.placed.grid, layout, unit)));
    return { x: plate.left + left * plate.width, y: plate.top + top * plate.height };
  }

  /** The layout of a layer's frame. */
  layoutOf(layer: string): FrameLayout | null {
    const plate = this.plates.find(({ placed }) => placed.layer.name === layer);
    return plate ? this.layout(plate) : null;
  }

  requestDraw(done?: () => void): void {
    if (done) this.drawCallbacks.push(done);
    this.frameRequest ||= requestAnimationFrame(() => this.draw());
  }

  dispose(): void {
    cancelAnimationFrame(this.frameRequest);
    this.resizeObserver.disconnect();
    this.canvas.remove();
  }

  private layout({ placed }: Plate): FrameLayout {
    const frame = this.frames.get(placed.layer.name) ?? null;
    return { ...layoutOf(placed.grid, frame?.head ?? null), picture: pictureOf(placed, frame) };
  }

  private updateRanges(): void {
    if (!this.setting) return;
    const globalRange = computeRange([...this.frames.values()], this.setting);
    for (const { layer } of this.net?.layers ?? []) {
      const frame = this.frames.get(layer.name);
      const isPerLayer = frame && this.setting.mode === "layer";
      this.ranges.set(layer.name, isPerLayer ? computeRange([frame], this.settingOf(layer.name)!) : globalRange);
    }
    this.requestDraw();
  }

  // With the colours and range of the values that a layer shows.
  private settingOf(name: string): RangeSetting | null {
    const [placed, variable] = [this.net?.layers.find(({ layer }) => layer.name === name), this.frames.get(name)?.head.variable]; // prettier-ignore
    return this.setting && placed && variable ? layerSetting(this.setting, placed.layer, variable) : this.setting;
  }

  private resize(): void {
    const ratio = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = this.host.clientWidth * ratio;
    this.canvas.height = this.host.clientHeight * ratio;
    this.arrange();
  }

  // Arrange the layers in rows, the input first, as large as the window allows.
  private arrange(): void {
    const layers = this.net?.layers ?? [];
    let scale = 80;
    const { top, bottom } = this.freeSpace();
    do this.plates = arrangePlates(layers, (scale *= 0.9), this.host.clientWidth, top);
    while (scale > 1 && this.plates.some((plate) => plate.top + plate.height + 8 > bottom));
    this.requestDraw();
  }

  // Between what lies over the picture: breadcrumbs and notices above, the legend below.
  private freeSpace(): { top: number; bottom: number } {
    const over = (names: string): HTMLElement[] => [...(this.host.parentElement?.querySelectorAll<HTMLElement>(`:scope > :is(${names})`) ?? [])]; // prettier-ignore
    const above = over(".network-way, .network-over, .network-flat").map(({ offsetTop, offsetHeight }) => offsetTop + offsetHeight); // prettier-ignore
    const { clientHeight } = this.host;
    const [top, bottom] = [Math.max(0, ...above), clientHeight - LEGEND_PX];
    return bottom - top > MIN_FREE_PX ? { top, bottom } : { top: 0, bottom: clientHeight };
  }

  draw(): void {
    if (JSON.stringify(this.freeSpace()) !== this.spaceKey) {
      this.spaceKey = JSON.stringify(this.freeSpace()); // the legend or a notice has come
      this.arrange();
    }
    cancelAnimationFrame(this.frameRequest);
    this.frameRequest = 0;
    const context = this.canvas.getContext("2d")!;
    const ratio = Math.min(2, devicePixelRatio || 1);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.host.clientWidth, this.host.clientHeight);
    context.imageSmoothingEnabled = false;
    for (const plate of this.plates) this.drawPlate(context, plate);
    this.drawCount++;
    for (const done of this.drawCallbacks.splice(0)) done();
  }

  private drawPlate(context: CanvasRenderingContext2D, plate: Plate): void {
    const { layer } = plate.placed;
    context.fillStyle = this.appearance.palette.plane;
    context.fillRect(plate.left - 3, plate.top - 3, plate.width + 6, plate.height + 6);
    this.drawFault(context, plate);
    if (this.appearance.labels) {
      context.fillStyle = this.appearance.dark ? "#e6e9ee" : "#1c2127";
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(this.titleOf(layer.name), plate.left - 2, plate.top - 7, Math.max(plate.width, 60));
    }
    const tint = this.tints?.get(layer.name);
    if (this.tints) {
      context.fillStyle = tint?.fill || this.appearance.palette.plane;
      return context.fillRect(plate.left, plate.top, plate.width, plate.height);
    }
    const layout = this.layout(plate);
    if (layout.picture) return this.drawPicture(context, plate, layout.picture);
    const [image, across, down] = this.imageOf(layer.name, layout, plate.placed);
    for (let tile = 0; tile < layout.sent[0] * layout.sent[1]; tile++) {
      const [rows, columns] = [layout.sent[2], layout.sent[3]];
      const [left, top] = sentCellFraction(layout, tile * rows * columns);
      const [right, bottom] = sentCellFraction(layout, (tile + 1) * rows * columns - 1);
      const wide = ((right - left) * plate.width * columns) / Math.max(1, columns - 1) || plate.width / layout.sent[1];
      const high = ((bottom - top) * plate.height * rows) / Math.max(1, rows - 1) || plate.height / layout.sent[0];
      const x = plate.left + ((left + right) / 2) * plate.width - wide / 2;
      const y = plate.top + ((top + bottom) / 2) * plate.height - high / 2;
      context.drawImage(image, 0, tile * rows, across, down, x, y, wide, high);
    }
  }

  // "h.0–3 ×4 +", with its number or fault.
  private titleOf(name: string): string {
    const item = this.items.get(name);
    const more = this.tints?.get(name)?.text || this.faults.get(name)?.text;
    return `${item?.title ?? name}${item?.canOpen ? " +" : ""}${more ? ` · ${more}` : ""}`;
  }

  private drawFault(context: CanvasRenderingContext2D, { placed, left, top, width, height }: Plate): void {
    const fault = this.faults.get(placed.layer.name);
    if (!fault) return;
    context.strokeStyle = this.appearance.palette.wrong;
    context.lineWidth = fault.isFirst ? 4 : 2;
    context.strokeRect(left - 3, top - 3, width + 6, height + 6);
  }

  private drawPicture(context: CanvasRenderingContext2D, plate: Plate, picture: RgbPicture): void {
    const frame = this.frames.get(plate.placed.layer.name)!;
    const image = document.createElement("canvas");
    [image.width, image.height] = sentPixels(picture);
    const pixels = image.getContext("2d")!.createImageData(image.width, image.height);
    for (let pixel = 0; pixel < image.width * image.height; pixel++) {
      const values = pixelValues(picture, frame, picture.isInterleaved ? pixel * 3 : pixel);
      const kind = values.map((value) => (value === undefined ? null : nonFiniteKind(value))).find(Boolean);
      const colour = kind
        ? parseColour(this.appearance.palette[kind])
        : values.map((value) => fractionIn(picture.shades, value ?? picture.shades[0]) * 255);
      pixels.data.set([...colour, 255], pixel * 4);
    }
    image.getContext("2d")!.putImageData(pixels, 0, 0);
    context.drawImage(image, plate.left, plate.top, plate.width, plate.height);
  }

  // All tiles stacked vertically, one pixel per cell.
  private imageOf(name: string, { sent }: FrameLayout, placed: PlacedLayer): [HTMLCanvasElement, number, number] {
    const image = document.createElement("canvas");
    [image.width, image.height] = [Math.max(1, sent[3]), Math.max(1, sent[0] * sent[1] * sent[2])];
    const context = image.getContext("2d")!;
    const pixels = context.createImageData(image.width, image.height);
    this.paint(new Uint32Array(pixels.data.buffer), name, sent, placed);
    context.putImageData(pixels, 0, 0);
    return [image, sent[3], sent[2]];
  }

  private paint(pixels: Uint32Array, name: string, sent: UnitGrid, placed: PlacedLayer): void {
    const frame = this.frames.get(name);
    const range = this.ranges.get(name) ?? [-1, 1];
    const ramp = buildRamp(findColourMap(this.settingOf(name)?.map ?? ""));
    const colours = new Uint32Array(256).map((_, byte) => {
      const value = frame ? valueOf(frame.head, byte) : undefined;
      if (value === undefined) return packColour(parseColour(this.appearance.palette.blank));
      const kind = nonFiniteKind(value);
      if (kind) return packColour(parseColour(this.appearance.palette[kind]));
      const offset = Math.round(fractionIn(range, value) * 255) * 4;
      return packColour([ramp[offset], ramp[offset + 1], ramp[offset + 2]]);
    });
    const isReduced = frame && (frame.head.raster || frame.head.block.some((length) => length > 1));
    const count = isReduced ? cellsOf(sent) : placed.units;
    for (let n = 0; n < Math.min(count, pixels.length); n++) pixels[n] = colours[frame?.bytes[n] ?? 0];
    if (this.selected?.layer !== name || frame?.head.raster) return;
    const layout = layoutOf(placed.grid, frame?.head ?? null);
    pixels[sentCellOf(layout, cellOfUnit(placed.grid, layout, this.selected.unit))] = packColour(
      parseColour(this.appearance.palette.green),
    );
  }
}

function packColour([red, green, blue]: readonly number[]): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function arrangePlates(layers: readonly PlacedLayer[], scale: number, maxWidth: number, from: number): Plate[] {
  let [left, top, rowHeight] = [SPACING_PX, from + SPACING_PX / 2, 0];
  return layers.map((placed) => {
    const [width, height] = [placed.size[0] * scale, placed.size[1] * scale];
    if (left > SPACING_PX && left + width > maxWidth - SPACING_PX)
      [left, top, rowHeight] = [SPACING_PX, top + rowHeight + SPACING_PX + TITLE_PX, 0];
    const plate = { placed, left, top: top + TITLE_PX, width, height };
    left += width + SPACING_PX;
    rowHeight = Math.max(rowHeight, height);
    return plate;
  });
}
