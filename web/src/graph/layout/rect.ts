// Rectangles.
export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export function touches(one: Rect, other: Rect): boolean {
  return (
    one.x <= other.x + other.width &&
    other.x <= one.x + one.width &&
    one.y <= other.y + other.height &&
    other.y <= one.y + one.height
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

/** Larger on all sides by a share of its size. */
export function grown({ x, y, width, height }: Rect, share: number): Rect {
  return { x: x - width * share, y: y - height * share, width: width * (1 + 2 * share), height: height * (1 + 2 * share) };
}
