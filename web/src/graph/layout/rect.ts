// Rectangles.
export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export function touches(first: Rect, second: Rect): boolean {
  return (
    first.x <= second.x + second.width &&
    second.x <= first.x + first.width &&
    first.y <= second.y + second.height &&
    second.y <= first.y + first.height
  );
}

export function contains(outer: Rect, inner: Rect): boolean {
  return (
    outer.x <= inner.x &&
    outer.y <= inner.y &&
    outer.x + outer.width >= inner.x + inner.width &&
    outer.y + outer.height >= inner.y + inner.height
  );
}

/** Enlarge a rectangle on all sides by a fraction of its size. */
export function growRect({ x, y, width, height }: Rect, fraction: number): Rect {
  return {
    x: x - width * fraction,
    y: y - height * fraction,
    width: width * (1 + 2 * fraction),
    height: height * (1 + 2 * fraction),
  };
}
