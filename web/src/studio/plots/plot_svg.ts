// A plot as SVG: the same lines, axes and ticks as on the screen.
import type { Theme } from "../theme";
import { scaleKeyOf } from "./chart";
import type { Cells, Line } from "./plot_lines";
import { lineStroke } from "./line_palette";
import { tickTexts, ticks } from "./axis_ticks";
import { indexRange, type Range, type PlotView } from "./plot_view";

/** Colours of everything but the lines. */
export interface Paper {
  paper: string;
  ink: string;
  soft: string;
  grid: string;
}

interface PlotArea {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The SVG document. */
export function plotSvg(
  view: PlotView,
  size: { width: number; height: number; title: string },
  theme: Theme,
  paper: Paper,
): string {
  const { width, height, title } = size;
  const box: PlotArea = {
    left: 64,
    top: 32 + 18 * Math.ceil(view.lines.length / 4),
    right: width - 20,
    bottom: height - 44,
  };
  if (view.scales.length > 1) box.right = width - 64;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12">`,
    `<title>${escape(title)}</title>`,
    `<rect width="${width}" height="${height}" fill="${paper.paper}"/>`,
    `<text x="${box.left}" y="20" fill="${paper.ink}" font-weight="600">${escape(title)}</text>`,
    ...legendElements(view, box, width, theme, paper),
    ...xAxis(view, box, paper),
    ...view.scales.slice(0, 2).flatMap((_scale, index) => yAxis(view, index, box, paper)),
    `<clipPath id="area"><rect x="${box.left}" y="${box.top}" width="${box.right - box.left}" height="${box.bottom - box.top}"/></clipPath>`,
    `<g clip-path="url(#area)" fill="none" stroke-linejoin="round">`,
    ...view.lines.flatMap((line) => linePaths(view, line, box, theme)),
    "</g></svg>",
  ];
  return parts.join("\n") + "\n";
}

/** Escape text for XML. */
export function escape(text: string): string {
  const codes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"]/g, (sign) => codes[sign]);
}

type AxisScale = (value: number) => number;

function makeScale([low, high]: Range, from: number, to: number, log: boolean): AxisScale {
  if (log) {
    const span = Math.log(high / low) || 1;
    return (value) => from + (Math.log(value / low) / span) * (to - from);
  }
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

function legendElements(view: PlotView, box: PlotArea, width: number, theme: Theme, paper: Paper): string[] {
  const room = (width - box.left - 20) / 4;
  return view.lines.flatMap(({ label, number }, index) => {
    const { colour, dash } = lineStroke(number, theme);
    const [x, y] = [box.left + (index % 4) * room, 40 + 18 * Math.floor(index / 4)];
    const line = `<line x1="${round(x)}" y1="${y - 4}" x2="${round(x + 18)}" y2="${y - 4}" stroke="${colour}" stroke-width="2"${dashAttribute(dash)}/>`;
    return [line, `<text x="${round(x + 24)}" y="${y}" fill="${paper.ink}">${escape(label)}</text>`];
  });
}

function xAxis(view: PlotView, box: PlotArea, paper: Paper): string[] {
  const scale = makeScale(view.xRange, box.left, box.right, view.logX);
  const values = ticks(...view.xRange, (box.right - box.left) / 96, view.logX, view.xIsInteger);
  const texts = tickTexts(values);
  return [
    ...values.flatMap((value, index) => {
      const x = round(scale(value));
      return [
        `<line x1="${x}" y1="${box.top}" x2="${x}" y2="${box.bottom}" stroke="${paper.grid}"/>`,
        `<text x="${x}" y="${box.bottom + 16}" text-anchor="middle" fill="${paper.soft}">${texts[index]}</text>`,
      ];
    }),
    `<text x="${(box.left + box.right) / 2}" y="${box.bottom + 36}" text-anchor="middle" fill="${paper.soft}">${escape(view.xLabel)}</text>`,
  ];
}

function yAxis(view: PlotView, index: number, box: PlotArea, paper: Paper): string[] {
  const { range, label } = view.scales[index];
  const scale = makeScale(range, box.bottom, box.top, view.logY);
  const values = ticks(...range, (box.bottom - box.top) / 40, view.logY);
  const texts = tickTexts(values);
  const [x, anchor] = index ? [box.right + 8, "start"] : [box.left - 8, "end"];
  const lines = values.flatMap((value, tick) => {
    const y = scale(value);
    const text = `<text x="${x}" y="${round(y + 4)}" text-anchor="${anchor}" fill="${paper.soft}">${texts[tick]}</text>`;
    return index
      ? [text]
      : [`<line x1="${box.left}" y1="${round(y)}" x2="${box.right}" y2="${round(y)}" stroke="${paper.grid}"/>`, text];
  });
  if (view.scales.length < 2) return lines;
  return [
    ...lines,
    `<text x="${x}" y="${box.top - 8}" text-anchor="${anchor}" fill="${paper.soft}">${escape(label)}</text>`,
  ];
}

function linePaths(view: PlotView, line: Line, box: PlotArea, theme: Theme): string[] {
  const { colour, dash } = lineStroke(line.number, theme);
  const scale = view.scales.find(({ key }) => key === scaleKeyOf(view, line.column))!;
  const x = makeScale(view.xRange, box.left, box.right, view.logX);
  const y = makeScale(scale.range, box.bottom, box.top, view.logY);
  const path = (cells: Cells): string => linePath(view, cells, x, y);
  const parts: string[] = [];
  if (line.raw) parts.push(`<path d="${path(line.raw)}" stroke="${colour}" stroke-opacity="0.33"/>`);
  if (line.error)
    parts.push(`<path d="${errorPath(view, line, x, y, scale.range[0])}" stroke="${colour}" stroke-opacity="0.8"/>`);
  parts.push(
    `<path d="${path(line.values)}" stroke="${colour}" stroke-width="1.75"${dashAttribute(dash)}><title>${escape(line.label)}</title></path>`,
  );
  return parts;
}

/** The path of a line; if several points share a pixel, only the lowest and highest. */
export function linePath(view: PlotView, cells: Cells, x: AxisScale, y: AxisScale): string {
  const [first, last] = indexRange(view.x, view.xRange);
  const points: string[] = [];
  let open = false;
  let pixel: { at: number; low: number; high: number } | null = null;
  const flush = (): void => {
    if (!pixel) return;
    for (const value of pixel.low === pixel.high ? [pixel.low] : [pixel.low, pixel.high]) {
      points.push(`${open ? "L" : "M"}${round(pixel.at)} ${round(value)}`);
      open = true;
    }
    pixel = null;
  };
  const isDense = last - first > 4000;
  for (let index = Math.max(0, first - 1); index < Math.min(cells.length, last + 1); index++) {
    const value = cells[index];
    if (value === undefined) continue;
    if (value === null) {
      flush();
      open = false;
      continue;
    }
    const [left, top] = [isDense ? Math.round(x(view.x[index]) * 2) / 2 : x(view.x[index]), y(value)];
    if (pixel && (pixel as { at: number }).at === left) {
      const current: { low: number; high: number } = pixel;
      pixel = { at: left, low: Math.min(current.low, top), high: Math.max(current.high, top) };
    } else {
      flush();
      pixel = { at: left, low: top, high: top };
    }
  }
  flush();
  return points.join("");
}

function errorPath(view: PlotView, line: Line, x: AxisScale, y: AxisScale, lowest: number): string {
  const [first, last] = indexRange(view.x, view.xRange);
  const parts: string[] = [];
  for (let index = first; index < last; index++) {
    const [value, error] = [line.values[index], line.error![index]];
    if (typeof value !== "number" || typeof error !== "number" || !error) continue;
    const left = round(x(view.x[index]));
    const low = view.logY && value - error <= 0 ? lowest : value - error;
    parts.push(`M${left} ${round(y(low))}V${round(y(value + error))}`);
  }
  return parts.join("");
}

function dashAttribute(dash: number[]): string {
  return dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
