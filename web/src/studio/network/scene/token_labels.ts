// Names of tokens at attention heads: beside the last head of each row of heads, and above the first row of them.
import type { Vector3 } from "three";
import type { HeadNames } from "../../token_names";
import { scenePoint } from "./layer_pose";
import type { LabelBox } from "./label_placement";
import type { LayerMesh } from "./layer_mesh";
import { sentCellFraction } from "./unit_grid";

const MIN_CELL_PX = 9; // of a cell whose row or column gets its name
const ANGLE = -50; // of names above columns, in degrees
const RIM = 0.5; // around the heads
const LETTER_PX = 6;
const MOST_LABELS = 600;

/** A name and where it begins. */
export interface TokenLabel {
  text: string;
  x: number;
  y: number;
  angle: number; // in degrees, clockwise
}

type OnScreen = (point: Vector3) => { x: number; y: number } | null;

/** The names at the heads of a layer; none where its cells are too small. */
export function tokenLabelsOf(mesh: LayerMesh, { rows, columns }: HeadNames, onScreen: OnScreen): TokenLabel[] {
  const { sent, block, plane } = mesh.layout;
  if (!mesh.frame || mesh.frame.head.raster || Math.max(...block) > 1 || plane !== mesh.placed.grid) return [];
  const heads = Math.ceil(mesh.placed.units / (sent[2] * sent[3]));
  const [cellWidth, cellDepth] = mesh.cellSize();
  const { size } = mesh.placed;
  const at = (head: number, row: number, column: number, right: number, front: number): TokenLabel | null => {
    const [left, back] = sentCellFraction(mesh.layout, (head * sent[2] + row) * sent[3] + column);
    const point = scenePoint(mesh.placed, (left - 0.5) * size[0] + right, 0, (back - 0.5) * size[1] + front);
    const spot = onScreen(point);
    return spot && { text: "", angle: 0, ...spot };
  };
  const labels: TokenLabel[] = [];
  for (let head = 0; head < heads; head++) {
    const isLast = head % sent[1] === sent[1] - 1 || head === heads - 1;
    const besides = rows && isLast ? rows.map((_, row) => at(head, row, sent[3] - 1, cellWidth / 2 + RIM, 0)) : [];
    const above =
      columns && head < sent[1] ? columns.map((_, column) => at(head, 0, column, 0, -cellDepth / 2 - RIM)) : [];
    labels.push(...named(besides, rows, 0), ...named(above, columns, ANGLE));
  }
  return labels.length > MOST_LABELS ? [] : labels;
}

function named(spots: (TokenLabel | null)[], names: readonly string[] | null, angle: number): TokenLabel[] {
  const [first, second] = spots;
  if (!names || !first || (second && Math.hypot(second.x - first.x, second.y - first.y) < MIN_CELL_PX)) return [];
  return spots.flatMap((spot, n) => (spot ? [{ ...spot, text: names[n], angle }] : []));
}

/** The labels on the screen; elements are reused. */
export class TokenLabels {
  shown: TokenLabel[] = [];
  private readonly element = document.createElement("div");

  constructor(host: HTMLElement) {
    this.element.className = "network-tokens";
    host.append(this.element);
  }

  show(labels: TokenLabel[], width: number, height: number): void {
    this.shown = labels.filter(({ x, y }) => x > 0 && y > 0 && x < width && y < height);
    while (this.element.childElementCount < this.shown.length) this.element.append(document.createElement("span"));
    [...(this.element.children as HTMLCollectionOf<HTMLElement>)].forEach((element, n) => {
      const label = this.shown[n];
      element.hidden = !label;
      if (!label) return;
      if (element.textContent !== label.text) element.textContent = label.text;
      element.style.transform = `translate(${label.x}px, ${label.y}px) rotate(${label.angle}deg) translateY(-50%)`;
    });
  }

  /** Where no other label should be. */
  boxes(): LabelBox[] {
    return this.shown.map(({ text, x, y, angle }) => {
      const length = Math.min(12, text.length) * LETTER_PX;
      const [across, up] = angle ? [length * 0.7, length * 0.8] : [length, 7];
      return { left: x, top: y - up, width: across + 6, height: up + 7 };
    });
  }

  remove(): void {
    this.element.remove();
  }
}
