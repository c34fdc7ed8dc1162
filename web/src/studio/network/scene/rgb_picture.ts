// RGB inputs as pictures: where a pixel's channels lie in a frame, and which values are black and full colour.
import type { PlacedLayer } from "../../messages";
import { valueOf, type Frame } from "../values/value_ranges";

const NORMALISED = 6; // how far from 0 the values of a picture are that was normalised to mean 0 and deviation 1
const CHANNELS = 3;

/** A frame that is drawn as a picture. */
export interface RgbPicture {
  isInterleaved: boolean; // channels last: the three values of a pixel lie side by side
  width: number; // in the layer's pixels
  height: number;
  block: [number, number]; // rows and columns of these that a sent pixel stands for
  shades: [number, number]; // the values that are black and full colour
}

/** The picture that a frame is; null where it is none: another variable, a raster, values unlike a picture's. */
export function pictureOf({ layer, grid }: PlacedLayer, frame: Frame | null): RgbPicture | null {
  if (layer.view !== "picture" || !frame || frame.head.raster || frame.head.variable.includes("Grad")) return null;
  const { head } = frame;
  const isInterleaved = grid[0] * grid[1] === 1;
  const isMixed = isInterleaved ? head.block[1] > 1 : head.grid[0] * head.grid[1] === 1; // blocks across channels
  const shades = shadesOf(head.lo, head.hi);
  if (!shades || isMixed) return null;
  return { isInterleaved, width: isInterleaved ? grid[3] / CHANNELS : grid[3], height: grid[2], block: head.block, shades }; // prettier-ignore
}

/** The values that are black and full colour in a picture whose values lie between these; null if no picture has such. */
export function shadesOf(lo: number, hi: number): [number, number] | null {
  if (lo >= 0 && hi <= 1) return [0, 1];
  if (lo >= -1 && hi <= 1) return [-1, 1];
  if (lo >= -NORMALISED && hi <= NORMALISED) return hi > lo ? [lo, hi] : [lo - 1, lo + 1];
  return lo >= 0 && hi <= 255 ? [0, 255] : null;
}

/** Columns and rows of pixels that were sent. */
export function sentPixels({ width, height, block }: RgbPicture): [number, number] {
  return [Math.ceil(width / block[1]), Math.ceil(height / block[0])];
}

/** The cell of the whole plane, that of red, under a point of it. */
export function redCellUnder({ width, height, isInterleaved }: RgbPicture, left: number, back: number): number {
  if (!(left >= 0 && left < 1 && back >= 0 && back < 1)) return -1;
  return (Math.floor(back * height) * width + Math.floor(left * width)) * (isInterleaved ? CHANNELS : 1);
}

/** The middle of the pixel that a sent cell belongs to, as fractions of the plane. */
export function pixelFraction(picture: RgbPicture, cell: number): [number, number] {
  const { width, height, block } = picture;
  const [columns] = sentPixels(picture);
  const pixel = pixelOf(picture, cell);
  const middle = (place: number, length: number, most: number): number =>
    (place * length + Math.min(most, (place + 1) * length)) / 2 / most;
  return [middle(pixel % columns, block[1], width), middle(Math.floor(pixel / columns), block[0], height)];
}

/** Red, green and blue of the pixel that a sent cell belongs to; undefined where there is no data. */
export function pixelValues(picture: RgbPicture, frame: Frame, cell: number): (number | undefined)[] {
  const [columns, rows] = sentPixels(picture);
  const [first, step] = picture.isInterleaved
    ? [pixelOf(picture, cell) * CHANNELS, 1]
    : [pixelOf(picture, cell), columns * rows];
  return [0, 1, 2].map((channel) => valueOf(frame.head, frame.bytes[first + channel * step] ?? 0));
}

function pixelOf(picture: RgbPicture, cell: number): number {
  const [columns, rows] = sentPixels(picture);
  return picture.isInterleaved ? Math.floor(cell / CHANNELS) : cell % (columns * rows);
}
