// How far keys move a camera, in 2D and 3D alike.

export const ZOOM_STEP = 1.25; // of + and −
export const PAN_PX = 60; // of an arrow

/** The arrow keys, and where each leads. */
export const ARROWS: Readonly<Record<string, readonly [right: number, down: number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};
