// Names beside the layers, as text over the canvas: never on top of each other, and none on what is too small for it.
// Where there are many layers, a name stands only where it covers no layer but its own.

export interface Wish {
  key: string;
  title: string;
  detail: string;
  weight: number; // whose wish comes first
  spots: Spot[]; // the best first
  chosen: boolean;
  quad?: { x: number; y: number }[]; // what it names, as it is seen; the names of others keep clear of it if they can
}

export interface Spot {
  x: number; // of the point it belongs to
  y: number;
  align: "left" | "right" | "centre"; // where the text lies of that point
}

/** Where labels may lie. */
export interface Room {
  width: number;
  height: number;
  taken: Box[]; // by buttons and the legend
  crowded: boolean; // with so many layers that only what is in nobody's way is shown
}

interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The labels of a scene. */
export class Labels {
  private readonly made = new Map<string, { element: HTMLElement; text: string; width: number; height: number }>();

  constructor(private readonly host: HTMLElement) {}

  /** Show what fits, in the order of weight. */
  show(wishes: Wish[], room: Room): void {
    const taken = [...room.taken];
    const quads = wishes.flatMap(({ quad, key }) => (quad ? [{ quad, key, ...boundsOf(quad) }] : []));
    const shown = new Set<string>();
    for (const wish of [...wishes].sort((one, other) => other.weight - one.weight)) {
      const label = this.labelFor(wish);
      const free = wish.spots.map((spot) => boxAt(spot, label)).filter((one) => isFree(one, taken, room));
      const clear = free.find((one) => !quads.some((other) => other.key !== wish.key && meet(one, other) && hits(one, other.quad)));
      const box = clear ?? (room.crowded && !wish.chosen ? undefined : free[0]);
      if (!box) continue;
      taken.push(box);
      shown.add(wish.key);
      label.element.style.transform = `translate(${Math.round(box.left)}px, ${Math.round(box.top)}px)`;
      label.element.classList.toggle("chosen", wish.chosen);
    }
    for (const [key, { element }] of this.made) element.hidden = !shown.has(key);
  }

  /** Forget all labels: another network. */
  clear(): void {
    this.made.clear();
    this.host.replaceChildren();
  }

  private labelFor(wish: Wish): { element: HTMLElement; width: number; height: number } {
    const text = `${wish.title}\n${wish.detail}`;
    const found = this.made.get(wish.key);
    if (found && found.text === text && found.width) return found;
    const element = found?.element ?? document.createElement("div");
    element.className = "network-label";
    element.replaceChildren(part("b", wish.title), ...(wish.detail ? [part("span", wish.detail)] : []));
    element.hidden = false;
    if (!found) this.host.append(element);
    const made = { element, text, width: element.offsetWidth, height: element.offsetHeight };
    this.made.set(wish.key, made);
    return made;
  }
}

function part(tag: string, text: string): HTMLElement {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function boxAt({ x, y, align }: Spot, { width, height }: { width: number; height: number }): Box {
  const left = align === "right" ? x - width : align === "left" ? x : x - width / 2;
  return { left, top: align === "centre" ? y : y - height / 2, width, height };
}

function isFree(box: Box, taken: Box[], { width, height }: Room): boolean {
  if (box.left < 2 || box.top < 2 || box.left + box.width > width - 2 || box.top + box.height > height - 2) return false;
  const { left, top } = box;
  return !taken.some((one) => meet({ left: left - 3, top: top - 1, width: box.width + 6, height: box.height + 2 }, one));
}

function meet(one: Box, other: Box): boolean {
  return (
    one.left <= other.left + other.width && other.left <= one.left + one.width &&
    one.top <= other.top + other.height && other.top <= one.top + one.height
  ); // prettier-ignore
}

function boundsOf(quad: { x: number; y: number }[]): Box {
  const [xs, ys] = [quad.map(({ x }) => x), quad.map(({ y }) => y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
}

// Whether a corner or the middle of a box lies on a quad, whose corners go around, or a corner of that in the box.
function hits(box: Box, quad: { x: number; y: number }[]): boolean {
  const { left, top, width, height } = box;
  if (quad.some(({ x, y }) => meet(box, { left: x, top: y, width: 0, height: 0 }))) return true;
  const points = [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5]].map(([a, b]) => ({ x: left + a * width, y: top + b * height })); // prettier-ignore
  return points.some((point) => {
    const sides = quad.map((one, n) => {
      const other = quad[(n + 1) % quad.length];
      return Math.sign((other.x - one.x) * (point.y - one.y) - (other.y - one.y) * (point.x - one.x));
    });
    return sides.every((side) => side >= 0) || sides.every((side) => side <= 0);
  });
}
