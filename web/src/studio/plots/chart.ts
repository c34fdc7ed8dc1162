// A plot on the screen, drawn with uPlot.
import uPlot from "uplot";

import type { Theme } from "../theme";
import { drawErrorBars } from "./error_bars";
import { lineStroke } from "./line_palette";
import { drawNonFinite } from "./non_finite_marks";
import { tickTexts, ticks } from "./axis_ticks";
import { listenForPicks } from "./line_picking";
import type { Line } from "./plot_lines";
import type { Range, PlotView, Zoom } from "./plot_view";

export const FONT = "12px system-ui, sans-serif";
const RAW_ALPHA = "55"; // alpha of the raw line behind a smoothed one
const FADED_ALPHA = "77"; // alpha of lines beside one that stands out

/** Events of a chart. */
export interface ChartEvents {
  hover: (index: number | null) => void;
  zoom: (zoom: Zoom) => void;
  pick: (line: Line) => void; // clicked
}

/** One plot in a host element. */
export class Chart {
  private plot: uPlot | null = null;
  private signature = "";
  private view!: PlotView;

  constructor(
    private readonly host: HTMLElement,
    private readonly events: ChartEvents,
  ) {}

  get canvas(): HTMLCanvasElement | null {
    return this.plot?.ctx.canvas ?? null;
  }

  /** Draw a view; if only its numbers changed, the plot is not rebuilt. */
  show(view: PlotView, theme: Theme): void {
    this.view = view;
    const newSignature = signatureOf(view, theme);
    if (newSignature === this.signature && this.plot) return this.plot.setData(dataOf(view));
    this.signature = newSignature;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(theme), dataOf(view), this.host);
    const pickLine = (line: number): void => this.events.pick(this.view.lines[line]);
    listenForPicks(
      this.plot,
      () => this.view,
      () => 1 + rawCount(this.view),
      pickLine,
    );
  }

  /** Put the cursor on a row, as the mouse would; null removes it. */
  point(index: number | null): void {
    const x = index === null ? undefined : this.view.x[index];
    const left = x === undefined ? -10 : (this.plot?.valToPos(x, "x") ?? -10);
    this.plot?.setCursor({ left, top: left < 0 ? -10 : this.plot.over.clientHeight / 2 });
  }

  /** Resize to the host element. */
  resize(): void {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (this.plot && width && height) this.plot.setSize({ width, height });
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private options(theme: Theme): uPlot.Options {
    const { view } = this;
    const scales: uPlot.Scales = { x: { time: false, distr: view.logX ? 3 : 1, range: () => this.view.xRange } };
    for (const { key } of view.scales) {
      scales[key] = { distr: view.logY ? 3 : 1, log: 10, range: () => this.rangeOf(key) };
    }
    return {
      width: this.host.clientWidth || 600,
      height: this.host.clientHeight || 300,
      padding: [12, 16, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: true, y: true, uni: 24, setScale: false },
        dataIdx: nearestIndex,
        bind: { dblclick: () => () => (this.events.zoom({ x: null, y: null }), null) },
      },
      scales,
      axes: this.axes(),
      series: [{}, ...seriesOf(view, theme)],
      hooks: {
        setCursor: [(plot) => this.events.hover(plot.cursor.left! < 0 ? null : (plot.cursor.idx ?? null))],
        setSelect: [(plot) => this.handleSelect(plot)],
        drawSeries: [(plot, index) => this.drawMarks(plot, index, theme)],
      },
    };
  }

  private rangeOf(key: string): Range {
    return this.view.scales.find((scale) => scale.key === key)?.range ?? [0, 1];
  }

  private axes(): uPlot.Axis[] {
    const { view } = this;
    const axisStyle = {
      font: FONT,
      labelFont: FONT,
      stroke: themeColour("--soft"),
      ticks: { stroke: themeColour("--line"), size: 4 },
    };
    const values: uPlot.Axis["values"] = (_plot, splits) => tickTexts(splits);
    const filter: uPlot.Axis["filter"] = (_plot, splits) => splits;
    const splits =
      (log: boolean, room: number): uPlot.Axis["splits"] =>
      (plot, axis, low, high) => {
        const pixels = (axis === 0 ? plot.bbox.width : plot.bbox.height) / uPlot.pxRatio;
        return ticks(low, high, pixels / room, log, axis === 0 && this.view.xIsInteger);
      };
    const grid = { stroke: themeColour("--grid"), width: 1 };
    const bottom: uPlot.Axis = {
      ...axisStyle,
      values,
      filter,
      grid,
      label: view.xLabel,
      labelSize: 20,
      labelGap: 0,
      size: 28,
      splits: splits(view.logX, 96),
    };
    const sides = view.scales.slice(0, 2).map(({ key, label }, index): uPlot.Axis => ({
      ...axisStyle,
      values,
      filter,
      scale: key,
      side: index ? 1 : 3,
      grid: index ? { show: false } : grid,
      splits: splits(view.logY, 40),
      size: (_plot, texts) => 16 + 7 * Math.max(2, ...(texts ?? []).map((text) => text.length)),
      ...(label && view.scales.length > 1 ? { label, labelSize: 20, labelGap: 0 } : {}),
    }));
    return [bottom, ...sides];
  }

  private handleSelect(plot: uPlot): void {
    const { left, top, width, height } = plot.select;
    if (width < 2 || height < 2) return;
    const area = plot.over;
    const spans = { x: width >= area.clientWidth - 1, y: height >= area.clientHeight - 1 };
    const x: Range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    const y: Record<string, Range> = {};
    for (const { key } of this.view.scales) y[key] = [plot.posToVal(top + height, key), plot.posToVal(top, key)];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.events.zoom({ x: spans.x ? this.view.xRange : x, y: spans.y ? null : y });
  }

  private drawMarks(plot: uPlot, index: number, theme: Theme): void {
    const line = this.view.lines[index - 1 - rawCount(this.view)];
    if (line) drawNonFinite(plot, line.nonFinite, lineStroke(line.number, theme).colour);
    if (line?.error)
      drawErrorBars(plot, line, scaleKeyOf(this.view, line.column), lineStroke(line.number, theme).colour);
  }
}

/** Read a colour of the page's theme. */
export function themeColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The key of a column's y axis. */
export function scaleKeyOf(view: PlotView, column: string): string {
  return view.scales.find(({ columns }) => columns.includes(column))?.key ?? "y0";
}

function rawCount(view: PlotView): number {
  return view.lines.filter(({ raw }) => raw).length;
}

function seriesOf(view: PlotView, theme: Theme): uPlot.Series[] {
  const rawLines = view.lines
    .filter((line) => line.raw)
    .map((line): uPlot.Series => ({
      label: line.label,
      scale: scaleKeyOf(view, line.column),
      width: 1,
      stroke: lineStroke(line.number, theme).colour + RAW_ALPHA,
      points: { show: false },
    }));
  const hasMarked = view.lines.some(({ isMarked }) => isMarked);
  const lines = view.lines.map((line): uPlot.Series => {
    const { colour, dash } = lineStroke(line.number, theme);
    return {
      label: line.label,
      scale: scaleKeyOf(view, line.column),
      width: line.isMarked ? 3.5 : 1.75,
      stroke: hasMarked && !line.isMarked ? colour + FADED_ALPHA : colour,
      dash,
      points: { size: 5, fill: colour },
    };
  });
  return [...rawLines, ...lines];
}

function dataOf(view: PlotView): uPlot.AlignedData {
  const raw = view.lines.filter((line) => line.raw).map((line) => line.raw!);
  return [view.x, ...raw, ...view.lines.map(({ values }) => values)] as uPlot.AlignedData;
}

function signatureOf({ lines, logX, logY, scales, xLabel }: PlotView, theme: Theme): string {
  const parts = lines.map(({ label, column, number, raw, error, isMarked }) => [
    label,
    column,
    number,
    !!raw,
    !!error,
    !!isMarked,
  ]);
  return JSON.stringify([parts, logX, logY, xLabel, theme, scales.map(({ key, label }) => [key, label])]);
}

// Lines of a plot may have values at different x: the cursor snaps to each line's nearest.
function nearestIndex(plot: uPlot, series: number, index: number): number {
  const cells = plot.data[series];
  if (!cells || typeof cells[index] === "number") return index;
  for (let distance = 1; distance < 64; distance++) {
    if (typeof cells[index - distance] === "number") return index - distance;
    if (typeof cells[index + distance] === "number") return index + distance;
  }
  return index;
}
