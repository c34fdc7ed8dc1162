// A logged image: its pixels on a canvas, small ones enlarged by a whole number so that each pixel stays a square.
import { useLayoutEffect, useRef } from "preact/hooks";

import type { SampleBytes } from "../store";
import { displayScale, toRgba } from "./sample_shapes";

const [SIZE_PX, LIST_SIZE_PX, LARGE_SIZE_PX] = [296, 142, 960]; // of the longer side: alone, in a list, enlarged
const CRISP_SCALE = 2; // from here on pixels are drawn as squares

/** The picture. */
export function ImageView({
  head,
  bytes,
  label,
  isLarge,
  inList,
}: SampleBytes & { label: string; isLarge: boolean; inList: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [height, width, channels] = head.shape;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (context) context.putImageData(new ImageData(toRgba(bytes, width, height, channels), width, height), 0, 0);
  }, [bytes]);
  const scale = displayScale(
    width,
    height,
    isLarge ? (inList ? SIZE_PX : LARGE_SIZE_PX) : inList ? LIST_SIZE_PX : SIZE_PX,
  );
  return (
    <canvas
      ref={canvas}
      class={`sample-image${scale >= CRISP_SCALE ? " crisp" : ""}`}
      role="img"
      aria-label={`${label}, ${width} × ${height} pixels`}
      title={`${width} × ${height}`}
      width={width}
      height={height}
      style={{ width: `${width * scale}px` }}
    />
  );
}
