// Export a plot as CSV, SVG or PNG.
import type { Json } from "../messages";
import { formatCsv, download } from "../tables/csv";
import type { Theme } from "../theme";
import { FONT, themeColour } from "./chart";
import { lineStroke } from "./line_palette";
import { plotSvg, type Paper } from "./plot_svg";
import type { PlotView } from "./plot_view";

/** The plotted numbers as CSV: x, each line, and for a smoothed line its raw values. */
export function plotCsv(view: PlotView): string {
  const columns: { name: string; cells: (number | null | undefined)[] }[] = [{ name: view.xLabel, cells: view.x }];
  for (const { label, values, raw, nonFinite, error } of view.lines) {
    columns.push({ name: label, cells: (raw ?? values).map((value, row) => nonFinite[row] ?? value) });
    if (raw) columns.push({ name: `${label} (smoothed)`, cells: values });
    if (error) columns.push({ name: `${label} (error)`, cells: error });
  }
  const rows = view.x.map((_x, row): Json[] => columns.map(({ cells }) => cells[row] ?? null));
  return formatCsv(
    columns.map(({ name }) => name),
    rows,
  );
}

/** The page's current colours. */
export function currentPaper(): Paper {
  return {
    paper: themeColour("--panel"),
    ink: themeColour("--ink"),
    soft: themeColour("--soft"),
    grid: themeColour("--grid"),
  };
}

/** Save the plot as SVG, at its size on the screen. */
export function saveSvg(view: PlotView, name: string, title: string, canvas: HTMLCanvasElement, theme: Theme): void {
  const { width, height } = canvas.getBoundingClientRect();
  const size = { width: Math.round(width), height: Math.round(height), title };
  download(`${name}.svg`, plotSvg(view, size, theme, currentPaper()), "image/svg+xml");
}

/** Save the plot as PNG, with a title and a legend above. */
export function savePng(view: PlotView, name: string, title: string, canvas: HTMLCanvasElement, theme: Theme): void {
  const output = document.createElement("canvas");
  const scale = canvas.width / canvas.getBoundingClientRect().width;
  const headerHeight = 28 + 18 * Math.ceil(view.lines.length / 4);
  output.width = canvas.width;
  output.height = canvas.height + Math.round(headerHeight * scale);
  const context = output.getContext("2d")!;
  const { paper, ink } = currentPaper();
  context.fillStyle = paper;
  context.fillRect(0, 0, output.width, output.height);
  context.drawImage(canvas, 0, output.height - canvas.height);
  context.scale(scale, scale);
  context.font = `600 ${FONT}`;
  context.fillStyle = ink;
  context.fillText(title, 16, 20);
  drawLegend(context, view, canvas.width / scale, ink, theme);
  output.toBlob((blob) => blob && download(`${name}.png`, blob), "image/png");
}

function drawLegend(context: CanvasRenderingContext2D, view: PlotView, width: number, ink: string, theme: Theme): void {
  context.font = FONT;
  view.lines.forEach(({ label, number }, index) => {
    const { colour, dash } = lineStroke(number, theme);
    const [x, y] = [16 + ((index % 4) * (width - 32)) / 4, 40 + 18 * Math.floor(index / 4)];
    context.strokeStyle = colour;
    context.setLineDash(dash);
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y - 4);
    context.lineTo(x + 18, y - 4);
    context.stroke();
    context.fillStyle = ink;
    context.fillText(label, x + 24, y, (width - 32) / 4 - 32);
  });
}
