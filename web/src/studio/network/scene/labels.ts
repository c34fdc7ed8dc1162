// Layer names as HTML over the canvas; `label_placement` says where.
import { placeLabels, type LabelArea, type LabelSpot, type PlacedLabel, type Point } from "./label_placement";

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
  quad?: Point[]; // the labelled plane on the screen; other labels avoid it if they can
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
    const placed = placeLabels(requests.map((request) => ({ ...request, size: this.labelFor(request) })), area); // prettier-ignore
    for (const { key, isSelected } of requests) {
      const [place, label] = [placed.get(key), this.labels.get(key)];
      if (!place || !label) continue;
      const { element } = label;
      element.style.transform = `translate(${Math.round(place.box.left)}px, ${Math.round(place.box.top)}px)`;
      element.classList.toggle("chosen", isSelected);
      element.classList.toggle("right", place.isRight);
      drawLeader(element, place);
    }
    for (const [key, { element }] of this.labels) element.hidden = !placed.has(key);
  }

  /** Remove all labels, for another network. */
  clear(): void {
    this.labels.clear();
    this.host.replaceChildren();
  }

  private labelFor(request: LabelRequest): { element: HTMLElement; width: number; height: number } {
    const { canOpen = false, isFrame = false } = request; // their signs take room, too
    const text = [request.title, request.detail, request.fault ?? "", canOpen, isFrame].join("\n");
    const cached = this.labels.get(request.key);
    if (cached && cached.text === text && cached.width) return cached;
    const element = cached?.element ?? document.createElement("div");
    element.className = "network-label";
    element.classList.toggle("closed", canOpen);
    element.classList.toggle("frame", isFrame);
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

// A line from a label to its slab, where it stands away from it.
function drawLeader(element: HTMLElement, { box, leader }: PlacedLabel): void {
  let line = element.querySelector<HTMLElement>("i");
  if (!leader) return line?.remove();
  if (!line) element.append((line = document.createElement("i")));
  const [start, end] = leader;
  const [across, down] = [end.x - start.x, end.y - start.y];
  line.style.width = `${Math.hypot(across, down)}px`;
  line.style.transform = `translate(${start.x - box.left}px, ${start.y - box.top}px) rotate(${Math.atan2(down, across)}rad)`;
}
