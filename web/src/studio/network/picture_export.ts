// The picture as a file: what is drawn, and the names and the legend that lie over it.
import { theme } from "../theme";
import type { Board } from "./presenter";
import { told } from "./values/timeline";

const TEXTS = ".network-label:not([hidden]) > *, .network-legend :is(b, span, small, li)";

/** A PNG of what one sees, and a line that says what it is. */
export function pngOf(board: Board): Promise<Blob | null> {
  board.scene.draw();
  const { canvas } = board.scene;
  const stage = canvas.closest<HTMLElement>(".network-stage")!;
  const made = document.createElement("canvas");
  [made.width, made.height] = [canvas.width, canvas.height];
  const context = made.getContext("2d")!;
  const scale = canvas.width / stage.clientWidth;
  context.scale(scale, scale);
  ground(context, stage);
  context.drawImage(canvas, 0, 0, stage.clientWidth, stage.clientHeight);
  over(context, stage);
  headline(context, stage, board);
  return new Promise((resolve) => made.toBlob(resolve, "image/png"));
}

// As CSS paints the stage: radial-gradient(120% 90% at 50% 38%).
function ground(context: CanvasRenderingContext2D, stage: HTMLElement): void {
  const { clientWidth: width, clientHeight: height } = stage;
  const style = getComputedStyle(stage);
  const fill = context.createRadialGradient(0, 0, 0, 0, 0, 1);
  fill.addColorStop(0, style.getPropertyValue("--net-high").trim());
  fill.addColorStop(1, style.getPropertyValue("--net-low").trim());
  context.save();
  context.translate(width * 0.5, height * 0.38);
  context.scale(width * 1.2, height * 0.9);
  context.fillStyle = fill;
  context.fillRect(-1, -2, 2, 4);
  context.restore();
}

function over(context: CanvasRenderingContext2D, stage: HTMLElement): void {
  const origin = stage.getBoundingClientRect();
  const boxOf = (element: Element): DOMRect => {
    const { x, y, width, height } = element.getBoundingClientRect();
    return new DOMRect(x - origin.x, y - origin.y, width, height);
  };
  for (const label of stage.querySelectorAll(".network-label:not([hidden]), .network-legend")) {
    const { x, y, width, height } = boxOf(label);
    context.fillStyle = theme.get() === "dark" ? "#1b2027b3" : "#fdfdfeb3";
    context.beginPath();
    context.roundRect(x, y, width, height, 4);
    context.fill();
  }
  const marker = stage.querySelector<HTMLElement>(".network-marker:not([hidden])");
  if (marker) ring(context, boxOf(marker), getComputedStyle(marker).borderTopColor);
  for (const bar of stage.querySelectorAll<HTMLCanvasElement>(".network-legend canvas")) context.drawImage(bar, ...parts(boxOf(bar)));
  for (const text of stage.querySelectorAll<HTMLElement>(TEXTS)) write(context, text, boxOf);
}

function ring(context: CanvasRenderingContext2D, { x, y, width }: DOMRect, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x + width / 2, y + width / 2, width / 2 - 1, 0, 2 * Math.PI);
  context.stroke();
}

// Where the browser has put a text, in its font and colour.
function write(context: CanvasRenderingContext2D, element: HTMLElement, boxOf: (element: Element) => DOMRect): void {
  const style = getComputedStyle(element);
  const range = document.createRange();
  range.selectNodeContents(element);
  const place = boxOf(range as unknown as Element);
  const box = boxOf(element);
  if (!place.width) return;
  context.fillStyle = style.color;
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent } = context.measureText("");
  const cut = style.textOverflow === "ellipsis";
  const text = cut ? fitting(context, element.textContent ?? "", box.width) : (element.textContent ?? "");
  context.fillText(text, cut ? Math.max(place.x, box.x) : place.x, Math.round(place.y + fontBoundingBoxAscent));
  if (element.localName === "li") line(context, element, place);
}

function fitting(context: CanvasRenderingContext2D, text: string, width: number): string {
  const tooLong = (one: string): boolean => context.measureText(one).width > width + 1;
  if (!tooLong(text)) return text;
  while (text && tooLong(`${text}…`)) text = text.slice(0, -1);
  return `${text}…`;
}

// The stroke before the name of a kind of arrow.
function line(context: CanvasRenderingContext2D, element: HTMLElement, place: DOMRect): void {
  const before = getComputedStyle(element, "::before");
  context.strokeStyle = before.borderTopColor;
  context.lineWidth = 2;
  context.setLineDash(before.borderTopStyle === "dashed" ? [4, 3] : []);
  context.beginPath();
  context.moveTo(place.x - 21, place.y + place.height / 2);
  context.lineTo(place.x - 5, place.y + place.height / 2);
  context.stroke();
  context.setLineDash([]);
}

function headline(context: CanvasRenderingContext2D, stage: HTMLElement, board: Board): void {
  const { moment, variable, item } = board.seen.get();
  const shown = board.store.moments.get().find(({ id }) => id === moment);
  const when = [variable, ...(item ? [`item ${item}`] : []), ...(shown ? [told(shown)] : [])].filter(Boolean).join(" · ");
  const { color, fontFamily } = getComputedStyle(stage);
  context.fillStyle = color;
  context.textBaseline = "top";
  context.font = `600 13px ${fontFamily}`;
  const name = board.store.net.get()?.name || "Network";
  context.fillText(name, 12, 10, stage.clientWidth / 2);
  const after = Math.min(context.measureText(name).width, stage.clientWidth / 2);
  context.font = `12px ${fontFamily}`;
  context.fillText(when, 12 + after + 10, 11, Math.max(1, stage.clientWidth - after - 34));
}

function parts({ x, y, width, height }: DOMRect): [number, number, number, number] {
  return [x, y, width, height];
}
