// The drawing as a file of its own: everything that is unfolded now, with header, legend and font inside.
import type { App } from "../app";
import { number } from "./edge_paths";
import { entries } from "../panels/legend";
import { element, translate } from "./painter";
import { isDark } from "../drawing_theme";

const [MARGIN, HEADER, BELOW] = [20, 46, 26]; // as in svg.py
const SHARP = 2; // pixels of a PNG for one of the drawing
const MOST = 8000; // and at most so many on a side

export function svgText(app: App): string {
  const { width, height } = app.root.view.box;
  const [title, ...rest] = app.data.header;
  const facts = rest.join("  ·  ");
  const foot = footer(app, Math.max(width, 560));
  const wide = Math.max(width, foot.width, textWidth(title ?? "", 17, true), textWidth(facts, 11)) + 2 * MARGIN;
  const top = MARGIN + HEADER;
  const high = top + height + (foot.height ? BELOW + foot.height : 0) + MARGIN;
  const size = { width: number(wide), height: number(high) };
  const { light, dark_rules } = app.data.colours;
  const svg = element("svg", {
    viewBox: `0 0 ${size.width} ${size.height}`,
    ...size,
    "font-family": "'torcheer Sans', Inter, system-ui, sans-serif",
    class: isDark(app.theme) ? "dark" : undefined,
  });
  const style = `${document.getElementById("font")?.textContent ?? ""}${isDark(app.theme) ? dark_rules : ""}`;
  const body = element("g", { transform: translate((wide - width) / 2, top) });
  body.append(...everything(app));
  foot.element.setAttribute("transform", translate(MARGIN, top + height + BELOW));
  svg.append(
    element("title", {}, title ?? "model"),
    element("style", {}, style),
    element("rect", { class: "paper", ...size, fill: light.paper }),
    app.painter.text(MARGIN, MARGIN + 14, title ?? "model", 17, "strong"),
    app.painter.text(MARGIN, MARGIN + 31, facts, 11, "soft"),
    body,
    foot.element,
  );
  return new XMLSerializer().serializeToString(svg);
}

/** Frames, then edges, then boxes: nothing is covered that should be seen. */
function everything(app: App): SVGElement[] {
  const [frames, edges, leaves]: SVGElement[][] = [[], [], []];
  for (const box of app.boxes) {
    const put = (made: SVGElement, list: SVGElement[]): void => {
      made.setAttribute("transform", translate(box.x, box.y));
      list.push(made);
    };
    if (box.view.composed) {
      edges.push(app.painter.edges(box.view, app.scene.down, null, true));
      edges[edges.length - 1].setAttribute("transform", translate(box.x, box.y));
      if (!box.parent) continue;
    }
    const made = box.view.composed
      ? app.painter.frame(box.view)
      : app.painter.leaf(box.view.part.leaf, app.scene.down, app.paint(box));
    made.prepend(element("title", {}, [box.address, app.describe(box)].filter(Boolean).join("\n")));
    put(made, box.view.composed ? frames : leaves);
  }
  return [...frames, ...edges, ...leaves];
}

function footer(app: App, room: number): { element: SVGElement; width: number; height: number } {
  const made = element("g");
  let [at, line, widest] = [0, 0, 0];
  for (const { swatch, words } of entries(app)) {
    const width = 22 + textWidth(words, 10) + 18;
    if (at && at + width > room) [at, line] = [0, line + 18];
    const entry = element("g", { transform: translate(at, line) });
    entry.append(swatch, app.painter.text(22, 9.5, words, 10, "soft"));
    made.append(entry);
    at += width;
    widest = Math.max(widest, at);
  }
  return { element: made, width: widest, height: widest ? line + 14 : 0 };
}

function textWidth(text: string, size: number, bold = false): number {
  const pen = document.createElement("canvas").getContext("2d")!;
  pen.font = `${bold ? 600 : 400} ${size}px 'torcheer Sans', Inter, system-ui, sans-serif`;
  return Math.ceil(pen.measureText(text).width);
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
    const scale = Math.min(SHARP, MOST / image.width, MOST / image.height);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * scale, image.height * scale].map(Math.round);
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    const made = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
    if (!made) throw new Error("the browser gave no PNG");
    download(made, `${fileName(app)}.png`);
  } catch {
    app.say("This drawing is too large for a PNG here. Save it as SVG, or fold some of it.");
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
