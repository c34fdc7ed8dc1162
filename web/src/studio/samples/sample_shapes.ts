// How samples become pictures: pixels, waveforms, shares of a matrix.

/** How many screen pixels a pixel gets: a whole number for small images, less than 1 for large ones. */
export function displayScale(width: number, height: number, size: number): number {
  const fit = size / Math.max(width, height, 1);
  return fit >= 1 ? Math.floor(fit) : fit;
}

/** Grey, RGB or RGBA as RGBA. */
export function toRgba(
  bytes: Uint8Array,
  width: number,
  height: number,
  channels: number,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(width * height * 4);
  for (let pixel = 0, from = 0, to = 0; pixel < width * height; pixel++, from += channels, to += 4) {
    pixels[to] = bytes[from];
    pixels[to + 1] = bytes[channels < 3 ? from : from + 1];
    pixels[to + 2] = bytes[channels < 3 ? from : from + 2];
    pixels[to + 3] = channels === 4 ? bytes[from + 3] : 255;
  }
  return pixels;
}

/** The least and largest number of each column. */
export function waveform(numbers: Int16Array, columns: number): [number, number][] {
  return Array.from({ length: columns }, (_, column) => {
    const start = Math.floor((column / columns) * numbers.length);
    const end = Math.max(start + 1, Math.floor(((column + 1) / columns) * numbers.length));
    let [low, high] = [Infinity, -Infinity];
    for (let index = start; index < Math.min(end, numbers.length); index++) {
      low = Math.min(low, numbers[index]);
      high = Math.max(high, numbers[index]);
    }
    return low <= high ? [low, high] : [0, 0];
  });
}

/** Each row divided by its sum; zeros where that is no number above 0. */
export function normalised(counts: number[][]): number[][] {
  return counts.map((row) => {
    const sum = row.reduce((total, count) => total + count, 0);
    return row.map((count) => (sum > 0 && Number.isFinite(sum) ? count / sum : 0));
  });
}
