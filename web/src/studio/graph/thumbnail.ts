// A layer's values as a small image: a pixel for each cell.
import type { PlacedLayer, Variable } from "../messages";
import { buildRamp, findColourMap, parseColour } from "../network/values/colour_maps";
import { loadSettings, rangeSetting } from "../network/settings";
import { computeRange, fractionIn, valueOf, type Frame } from "../network/values/value_ranges";
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
  private readonly ramp;
  private readonly common: [number, number] | null; // one range for all layers, if that was chosen
  private readonly special;

  constructor(frames: ReadonlyMap<string, Frame>, variable: Variable | undefined) {
    this.setting = rangeSetting(loadSettings(), variable);
    this.ramp = buildRamp(findColourMap(this.setting.map));
    this.common = this.setting.mode === "layer" ? null : computeRange([...frames.values()], this.setting);
    const { nan, plus, minus } = nonFiniteColours();
    this.special = { nan: rgb(nan), plus: rgb(plus), minus: rgb(minus) };
  }

  paint(frame: Frame, { layer }: PlacedLayer, aspect: number): ThumbnailImage {
    const axes = layer.shape.filter((length) => length > 1).length; // 512×1×1 is a row of units
    const { width, height, cells, keepsShape } = arrangeCells(frame.head, axes, aspect);
    const colours = this.byteColours(frame);
    const pixels = new Uint8ClampedArray(4 * width * height);
    cells.forEach((cell, n) => cell >= 0 && pixels.set(colours[frame.bytes[cell]], 4 * n));
    [this.canvas.width, this.canvas.height] = [width, height];
    this.canvas.getContext("2d")!.putImageData(new ImageData(pixels, width, height), 0, 0);
    return { url: this.canvas.toDataURL(), keepsShape };
  }

  private byteColours(frame: Frame): number[][] {
    const range = this.common ?? computeRange([frame], this.setting);
    return Array.from({ length: 256 }, (_, byte) => {
      const value = valueOf(frame.head, byte);
      if (value === undefined) return [0, 0, 0, 0];
      const kind = nonFiniteKind(value);
      if (kind) return this.special[kind];
      const place = 4 * Math.round(fractionIn(range, value) * 255);
      return [...this.ramp.subarray(place, place + 4)];
    });
  }
}

function rgb(colour: string): number[] {
  return [...parseColour(colour), 255];
}
