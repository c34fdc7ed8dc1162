// Export the drawing as a self-contained SVG or PNG: all that is unfolded, with header, legend and font.
import type { App } from "../app";
import { formatNumber } from "./edge_paths";
import { legendEntries } from "../panels/legend";
import { element, translate } from "./painter";
import { isDark } from "../drawing_theme";

const [MARGIN, HEADER, BELOW] = [20, 46, 26]; // as in svg.py
const PNG_SCALE = 2; // PNG pixels per drawing unit
const MAX_PNG_SIDE = 8000; // maximum PNG side in pixels

export function svgText(app: App): string {
  const { width, height } = app.root.view.box;
  const [title, ...headerFacts] = app.data.header;
  const facts = headerFacts.join("  ·  ");
  const legend = drawLegend(app, Math.max(width, 560));
  const totalWidth = Math.max(width, legend.width, textWidth(title ?? "", 17, true), textWidth(facts, 11)) + 2 * MARGIN;
  const top = MARGIN + HEADER;
  const totalHeight = top + height + (legend.height ? BELOW + legend.height : 0) + MARGIN;
  const size = { width: formatNumber(totalWidth), height: formatNumber(totalHeight) };
  const { light, dark_rules } = app.data.colours;
  const svg = element("svg", {
    viewBox: `0 0 ${size.width} ${size.height}`,
    ...size,
    "font-family": "'torcheer Sans', Inter, system-ui, sans-serif",
    class: isDark(app.theme) ? "dark" : undefined,
  });
  const style = `${app.data.font}${isDark(app.theme) ? dark_rules : ""}`;
  const body = element("g", { transform: translate((totalWidth - width) / 2, top) });
  body.append(...drawBoxes(app));
  legend.element.setAttribute("transform", translate(MARGIN, top + height + BELOW));
  svg.append(
    element("title", {}, title ?? "model"),
    element("style", {}, style),
    element("rect", { class: "paper", ...size, fill: light.paper }),
    app.painter.text(MARGIN, MARGIN + 14, title ?? "model", 17, "strong"),
    app.painter.text(MARGIN, MARGIN + 31, facts, 11, "soft"),
    body,
    legend.element,
  );
  return new XMLSerializer().serializeToString(svg);
}

/** Frames, then edges, then boxes, so that nothing important is covered. */
function drawBoxes(app: App): SVGElement[] {
  const [frames, edges, leaves]: SVGElement[][] = [[], [], []];
  for (const box of app.boxes) {
    const placeNode = (node: SVGElement, list: SVGElement[]): void => {
      node.setAttribute("transform", translate(box.x, box.y));
      list.push(node);
    };
    if (box.view.composed) {
      edges.push(app.painter.edges(box.view, app.tree.down, null, true));
      edges[edges.length - 1].setAttribute("transform", translate(box.x, box.y));
      if (!box.parent) continue;
    }
    const node = box.view.composed
      ? app.painter.frame(box.view)
      : app.painter.leaf(box.view.part.leaf, app.tree.down, app.paint(box));
    const picture = box.view.composed ? null : app.pictureOf(box);
    if (picture) node.append(picture);
    node.prepend(element("title", {}, [box.address, app.describe(box)].filter(Boolean).join("\n")));
    placeNode(node, box.view.composed ? frames : leaves);
  }
  return [...frames, ...edges, ...leaves];
}

function drawLegend(app: App, maxWidth: number): { element: SVGElement; width: number; height: number } {
  const group = element("g");
  let [left, top, widest] = [0, 0, 0];
  for (const { swatch, text } of legendEntries(app)) {
    const width = 22 + textWidth(text, 10) + 18;
    if (left && left + width > maxWidth) [left, top] = [0, top + 18];
    const entry = element("g", { transform: translate(left, top) });
    entry.append(swatch, app.painter.text(22, 9.5, text, 10, "soft"));
    group.append(entry);
    left += width;
    widest = Math.max(widest, left);
  }
  return { element: group, width: widest, height: widest ? top + 14 : 0 };
}

function textWidth(text: string, size: number, bold = false): number {
  const context = document.createElement("canvas").getContext("2d")!;
  context.font = `${bold ? 600 : 400} ${size}px 'torcheer Sans', Inter, system-ui, sans-serif`;
  return Math.ceil(context.measureText(text).width);
}

export function saveSvg(app: App): void {
  download(new Blob([svgText(app)], { type: "image/svg+xml" }), `${fileName(app)}.svg`);
}

export async function savePng(app: App): Promise<void> {
  const url = URL.createObjectURL(new Blob([svgText(app)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const scale = Math.min(PNG_SCALE, MAX_PNG_SIDE / image.width, MAX_PNG_SIDE / image.height);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * scale, image.height * scale].map(Math.round);
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
    if (!blob) throw new Error("the browser gave no PNG");
    download(blob, `${fileName(app)}.png`);
  } catch {
    app.showMessage("This drawing is too large for a PNG here. Save it as SVG, or fold some of it.");
  } finally {
    URL.revokeObjectURL(url);
  }
}

function fileName(app: App): string {
  return (app.data.header[0] ?? "").replace(/[^\w.-]+/g, "_") || "model";
}

function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
