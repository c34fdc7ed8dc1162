// Export the view as a PNG: the canvas, plus the labels and the legend over it.
import { theme } from "../theme";
import type { NetworkPresenter } from "./presenter";
import { Scene } from "./scene/scene";
import type { TokenLabel } from "./scene/token_labels";
import { formatMoment } from "./values/timeline";

const TEXT_SELECTOR = ".network-label:not([hidden]) > *, .network-legend :is(b, span, small, li)";

/** A PNG of the view, with a caption line. */
export function pngOf(presenter: NetworkPresenter): Promise<Blob | null> {
  presenter.scene.draw();
  const { canvas } = presenter.scene;
  const stage = canvas.closest<HTMLElement>(".network-stage")!;
  const output = document.createElement("canvas");
  [output.width, output.height] = [canvas.width, canvas.height];
  const context = output.getContext("2d")!;
  const scale = canvas.width / stage.clientWidth;
  context.scale(scale, scale);
  drawBackground(context, stage);
  context.drawImage(canvas, 0, 0, stage.clientWidth, stage.clientHeight);
  drawOverlay(context, stage);
  if (presenter.scene instanceof Scene) drawTokens(context, stage, presenter.scene.tokens.shown);
  drawHeadline(context, stage, presenter);
  return new Promise((resolve) => output.toBlob(resolve, "image/png"));
}

// The stage's CSS background: radial-gradient(120% 90% at 50% 38%).
function drawBackground(context: CanvasRenderingContext2D, stage: HTMLElement): void {
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

function drawOverlay(context: CanvasRenderingContext2D, stage: HTMLElement): void {
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
  if (marker) drawRing(context, boxOf(marker), getComputedStyle(marker).borderTopColor);
  for (const bar of stage.querySelectorAll<HTMLCanvasElement>(".network-legend canvas"))
    context.drawImage(bar, ...rectTuple(boxOf(bar)));
  for (const text of stage.querySelectorAll<HTMLElement>(TEXT_SELECTOR)) drawText(context, text, boxOf);
}

// Names of tokens, some of them turned.
function drawTokens(context: CanvasRenderingContext2D, stage: HTMLElement, labels: readonly TokenLabel[]): void {
  const { color, fontFamily } = getComputedStyle(stage);
  context.fillStyle = color;
  context.font = `10px ${fontFamily}`;
  context.textBaseline = "middle";
  for (const { text, x, y, angle } of labels) {
    context.save();
    context.translate(x, y);
    context.rotate((angle * Math.PI) / 180);
    context.fillText(ellipsize(context, text, 80), 0, 0);
    context.restore();
  }
  context.textBaseline = "alphabetic";
}

function drawRing(context: CanvasRenderingContext2D, { x, y, width }: DOMRect, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x + width / 2, y + width / 2, width / 2 - 1, 0, 2 * Math.PI);
  context.stroke();
}

// Draw a text where the browser laid it out, in its font and colour.
function drawText(context: CanvasRenderingContext2D, element: HTMLElement, boxOf: (element: Element) => DOMRect): void {
  const style = getComputedStyle(element);
  const range = document.createRange();
  range.selectNodeContents(element);
  const textBox = boxOf(range as unknown as Element);
  const box = boxOf(element);
  if (!textBox.width) return;
  context.fillStyle = style.color;
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent } = context.measureText("");
  const isCut = style.textOverflow === "ellipsis";
  const text = isCut ? ellipsize(context, element.textContent ?? "", box.width) : (element.textContent ?? "");
  context.fillText(text, isCut ? Math.max(textBox.x, box.x) : textBox.x, Math.round(textBox.y + fontBoundingBoxAscent));
  if (element.localName === "li") drawArrowSample(context, element, textBox);
}

function ellipsize(context: CanvasRenderingContext2D, text: string, width: number): string {
  const tooLong = (candidate: string): boolean => context.measureText(candidate).width > width + 1;
  if (!tooLong(text)) return text;
  while (text && tooLong(`${text}…`)) text = text.slice(0, -1);
  return `${text}…`;
}

// The line sample before the name of an arrow type.
function drawArrowSample(context: CanvasRenderingContext2D, element: HTMLElement, textBox: DOMRect): void {
  const style = getComputedStyle(element, "::before");
  context.strokeStyle = style.borderTopColor;
  context.lineWidth = 2;
  context.setLineDash(style.borderTopStyle === "dashed" ? [4, 3] : []);
  context.beginPath();
  context.moveTo(textBox.x - 21, textBox.y + textBox.height / 2);
  context.lineTo(textBox.x - 5, textBox.y + textBox.height / 2);
  context.stroke();
  context.setLineDash([]);
}

function drawHeadline(context: CanvasRenderingContext2D, stage: HTMLElement, presenter: NetworkPresenter): void {
  const { moment, variable, item } = presenter.displayed.get();
  const shownMoment = presenter.store.moments.get().find(({ id }) => id === moment);
  const caption = [variable, ...(item ? [`item ${item}`] : []), ...(shownMoment ? [formatMoment(shownMoment)] : [])]
    .filter(Boolean)
    .join(" · ");
  const { color, fontFamily } = getComputedStyle(stage);
  context.fillStyle = color;
  context.textBaseline = "top";
  context.font = `600 13px ${fontFamily}`;
  const name = presenter.store.net.get()?.name || "Network";
  context.fillText(name, 12, 10, stage.clientWidth / 2);
  const nameWidth = Math.min(context.measureText(name).width, stage.clientWidth / 2);
  context.font = `12px ${fontFamily}`;
  context.fillText(caption, 12 + nameWidth + 10, 11, Math.max(1, stage.clientWidth - nameWidth - 34));
}

function rectTuple({ x, y, width, height }: DOMRect): [number, number, number, number] {
  return [x, y, width, height];
}
