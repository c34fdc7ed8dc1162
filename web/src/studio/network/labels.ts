// Names beside the layers, as text over the canvas: never on top of each other, and none on what is too small for it.

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
  show(wishes: Wish[], width: number, height: number, avoid: boolean): void {
    const taken: Box[] = [];
    const quads = avoid ? wishes.flatMap(({ quad, key }) => (quad ? [{ quad, key }] : [])) : [];
    const shown = new Set<string>();
    for (const wish of [...wishes].sort((one, other) => other.weight - one.weight)) {
      const label = this.labelFor(wish);
      const free = wish.spots.map((spot) => boxAt(spot, label)).filter((one) => isFree(one, taken, width, height));
      const box = free.find((one) => !quads.some(({ quad, key }) => key !== wish.key && hits(one, quad))) ?? free[0];
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

function isFree(box: Box, taken: Box[], width: number, height: number): boolean {
  if (box.left < 2 || box.top < 2 || box.left + box.width > width - 2 || box.top + box.height > height - 2) return false;
  return taken.every(
    (one) =>
      box.left + box.width + 3 < one.left ||
      one.left + one.width + 3 < box.left ||
      box.top + box.height + 1 < one.top ||
      one.top + one.height + 1 < box.top,
  );
}

// Whether a corner or the middle of a box lies on a quad; its corners go around.
function hits({ left, top, width, height }: Box, quad: { x: number; y: number }[]): boolean {
  const points = [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5]].map(([a, b]) => ({ x: left + a * width, y: top + b * height })); // prettier-ignore
  return points.some((point) => {
    const sides = quad.map((one, n) => {
      const other = quad[(n + 1) % quad.length];
      return Math.sign((other.x - one.x) * (point.y - one.y) - (other.y - one.y) * (point.x - one.x));
    });
    return sides.every((side) => side >= 0) || sides.every((side) => side <= 0);
  });
}
