// A layer's values as a small image: a pixel for each cell.
import type { PlacedLayer, Variable } from "../messages";
import { pictureOf, pixelValues, sentPixels, type RgbPicture } from "../network/scene/rgb_picture";
import { buildRamp, findColourMap, parseColour } from "../network/values/colour_maps";
import { loadSettings, rangeSetting } from "../network/settings";
import {
  computeRange,
  fractionIn,
  layerSetting,
  valueOf,
  type Frame,
  type RangeSetting,
} from "../network/values/value_ranges";
import { nonFiniteColours, nonFiniteKind } from "../non_finite";
import { arrangeCells } from "./thumbnail_layout";

/** An image and how it fills its place. */
export interface ThumbnailImage {
  url: string;
  keepsShape: boolean;
}

/** Colours values as the Network tab does. */
export class ThumbnailPainter {
  private readonly canvas = document.createElement("canvas");
  private readonly setting;
  private readonly common: [number, number] | null; // one range for all layers, if that was chosen
  private readonly special;

  constructor(frames: ReadonlyMap<string, Frame>, variable: Variable | undefined) {
    this.setting = rangeSetting(loadSettings(), variable);
    this.common = this.setting.mode === "layer" ? null : computeRange([...frames.values()], this.setting);
    const { nan, plus, minus } = nonFiniteColours();
    this.special = { nan: rgb(nan), plus: rgb(plus), minus: rgb(minus) };
  }

  paint(frame: Frame, placed: PlacedLayer, aspect: number): ThumbnailImage {
    const picture = pictureOf(placed, frame);
    if (picture) return this.paintRgb(picture, frame);
    const { layer } = placed;
    const axes = layer.shape.filter((length) => length > 1).length; // 512×1×1 is a row of units
    const { width, height, cells, keepsShape } = arrangeCells(frame.head, axes, aspect);
    const colours = this.byteColours(frame, layerSetting(this.setting, layer, frame.head.variable));
    const pixels = new Uint8ClampedArray(4 * width * height);
    cells.forEach((cell, n) => cell >= 0 && pixels.set(colours[frame.bytes[cell]], 4 * n));
    return { url: this.urlOf(pixels, width, height), keepsShape };
  }

  private paintRgb(picture: RgbPicture, frame: Frame): ThumbnailImage {
    const [columns, rows] = sentPixels(picture);
    const [tall, wide] = picture.block.map((side) => Math.round(side / Math.min(...picture.block))); // not always square
    const [width, height] = [columns * wide, rows * tall];
    const pixels = new Uint8ClampedArray(4 * width * height);
    for (let place = 0; place < width * height; place++) {
      const pixel = Math.floor(Math.floor(place / width) / tall) * columns + Math.floor((place % width) / wide);
      const values = pixelValues(picture, frame, picture.isInterleaved ? 3 * pixel : pixel);
      const shades = values.map((value) => 255 * fractionIn(picture.shades, value ?? NaN));
      if (shades.every(Number.isFinite)) pixels.set([...shades, 255], 4 * place);
    }
    return { url: this.urlOf(pixels, width, height), keepsShape: true };
  }

  private urlOf(pixels: Uint8ClampedArray<ArrayBuffer>, width: number, height: number): string {
    [this.canvas.width, this.canvas.height] = [width, height];
    this.canvas.getContext("2d")!.putImageData(new ImageData(pixels, width, height), 0, 0);
    return this.canvas.toDataURL();
  }

  private byteColours(frame: Frame, setting: RangeSetting): number[][] {
    const range = this.common ?? computeRange([frame], setting);
    const ramp = buildRamp(findColourMap(setting.map));
    return Array.from({ length: 256 }, (_, byte) => {
      const value = valueOf(frame.head, byte);
      if (value === undefined) return [0, 0, 0, 0];
      const kind = nonFiniteKind(value);
      if (kind) return this.special[kind];
      const place = 4 * Math.round(fractionIn(range, value) * 255);
      return [...ramp.subarray(place, place + 4)];
    });
  }
}

function rgb(colour: string): number[] {
  return [...parseColour(colour), 255];
}
