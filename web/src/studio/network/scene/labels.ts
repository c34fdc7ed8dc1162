// Layer names as HTML over the canvas: they never overlap, and planes that are too small get none. With many layers, a
// name is shown only where it covers no other layer.

export interface LabelRequest {
  key: string;
  title: string;
  detail: string;
  weight: number; // higher weights are placed first
  spots: LabelSpot[]; // candidate positions, best first
  isSelected: boolean;
  canOpen?: boolean; // a closed module
  fault?: string; // what is wrong with it
  isFrame?: boolean; // the title of an open one
  quad?: { x: number; y: number }[]; // the labelled plane on the screen; other labels avoid it if they can
}

export interface LabelSpot {
  x: number; // anchor point, in pixels
  y: number;
  align: "left" | "right" | "centre"; // side of the text at the anchor
}

/** The area where labels may be placed. */
export interface LabelArea {
  width: number;
  height: number;
  occupied: LabelBox[]; // boxes of buttons and the legend
  isCrowded: boolean; // so many layers that only labels without overlap are shown
}

export interface LabelBox {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The labels of a scene. */
export class Labels {
  private readonly labels = new Map<string, { element: HTMLElement; text: string; width: number; height: number }>();

  constructor(
    private readonly host: HTMLElement,
    private readonly onClick: (key: string) => void = () => {},
  ) {}

  /** Place the labels that fit, in order of weight. */
  show(requests: LabelRequest[], area: LabelArea): void {
    const occupied = [...area.occupied];
    const quads = requests.flatMap(({ quad, key }) => (quad ? [{ quad, key, ...boundsOf(quad) }] : []));
    const shownKeys = new Set<string>();
    for (const request of [...requests].sort((candidate, another) => another.weight - candidate.weight)) {
      const label = this.labelFor(request);
      const free = request.spots
        .map((spot) => labelBox(spot, label))
        .filter((candidate) => isFree(candidate, occupied, area));
      const clear = free.find(
        (candidate) =>
          !quads.some(
            (another) =>
              another.key !== request.key && overlaps(candidate, another) && coversQuad(candidate, another.quad),
          ),
      );
      const box = clear ?? (area.isCrowded && !request.isSelected ? undefined : free[0]);
      if (!box) continue;
      occupied.push(box);
      shownKeys.add(request.key);
      label.element.style.transform = `translate(${Math.round(box.left)}px, ${Math.round(box.top)}px)`;
      label.element.classList.toggle("chosen", request.isSelected);
      label.element.classList.toggle("closed", request.canOpen ?? false);
      label.element.classList.toggle("frame", request.isFrame ?? false);
    }
    for (const [key, { element }] of this.labels) element.hidden = !shownKeys.has(key);
  }

  /** Remove all labels, for another network. */
  clear(): void {
    this.labels.clear();
    this.host.replaceChildren();
  }

  private labelFor(request: LabelRequest): { element: HTMLElement; width: number; height: number } {
    const text = `${request.title}\n${request.detail}\n${request.fault ?? ""}`;
    const cached = this.labels.get(request.key);
    if (cached && cached.text === text && cached.width) return cached;
    const element = cached?.element ?? document.createElement("div");
    element.className = "network-label";
    element.replaceChildren(
      textElement("b", request.title),
      ...(request.detail ? [textElement("span", request.detail)] : []),
      ...(request.fault ? [textElement("em", request.fault)] : []),
    );
    element.hidden = false;
    if (!cached) {
      this.host.append(element);
      element.addEventListener("click", () => this.onClick(request.key));
    }
    const label = { element, text, width: element.offsetWidth, height: element.offsetHeight };
    this.labels.set(request.key, label);
    return label;
  }
}

function textElement(tag: string, text: string): HTMLElement {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function labelBox({ x, y, align }: LabelSpot, { width, height }: { width: number; height: number }): LabelBox {
  const left = align === "right" ? x - width : align === "left" ? x : x - width / 2;
  return { left, top: align === "centre" ? y : y - height / 2, width, height };
}

function isFree(box: LabelBox, occupied: LabelBox[], { width, height }: LabelArea): boolean {
  if (box.left < 2 || box.top < 2 || box.left + box.width > width - 2 || box.top + box.height > height - 2)
    return false;
  const { left, top } = box;
  return !occupied.some((another) =>
    overlaps({ left: left - 8, top: top - 1, width: box.width + 16, height: box.height + 2 }, another),
  );
}

function overlaps(first: LabelBox, second: LabelBox): boolean {
  return (
    first.left <= second.left + second.width && second.left <= first.left + first.width &&
    first.top <= second.top + second.height && second.top <= first.top + first.height
  ); // prettier-ignore
}

function boundsOf(quad: { x: number; y: number }[]): LabelBox {
  const [xs, ys] = [quad.map(({ x }) => x), quad.map(({ y }) => y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
}

// Whether a corner or the centre of the box lies on the quad (corners in order), or a corner of the quad in the box.
function coversQuad(box: LabelBox, quad: { x: number; y: number }[]): boolean {
  const { left, top, width, height } = box;
  if (quad.some(({ x, y }) => overlaps(box, { left: x, top: y, width: 0, height: 0 }))) return true;
  const points = [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5]].map(([a, b]) => ({ x: left + a * width, y: top + b * height })); // prettier-ignore
  return points.some((point) => {
    const sides = quad.map((start, n) => {
      const end = quad[(n + 1) % quad.length];
      return Math.sign((end.x - start.x) * (point.y - start.y) - (end.y - start.y) * (point.x - start.x));
    });
    return sides.every((side) => side >= 0) || sides.every((side) => side <= 0);
  });
}
