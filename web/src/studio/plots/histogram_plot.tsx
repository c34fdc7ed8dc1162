// Histograms over time as a heat map: steps to the right, values upwards, the share of the values as colour.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { parseColour } from "../network/values/colour_maps";
import { Icon } from "../shell/icons";
import { useValue } from "../signal";
import { download, formatCsv } from "../tables/csv";
import { moveCursor } from "../tables/tensor_cell";
import { formatNumber } from "../tables/value_format";
import { theme, type Theme } from "../theme";
import { tickTexts, ticks } from "./axis_ticks";
import { FONT, themeColour } from "./chart";
import { binTicks, histogramRows, type HistogramView } from "./histogram_view";

const MARGIN = { left: 72, right: 16, top: 12, bottom: 44 };
const STRONGEST: Record<Theme, string> = { light: "#06234f", dark: "#eaf3ff" }; // beyond the accent
const FAINTEST = 0.12; // of the scale: a single value must be visible
const [X_TICK_PX, Y_TICK_PX] = [96, 24];

interface HistogramPlotProps {
  name: string;
  title: string;
  view: HistogramView;
}

/** The heat map with its axes; mouse and arrow keys read it. */
export function HistogramPlot({ name, title, view }: HistogramPlotProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState<[number, number] | null>(null); // bin, column
  const [size, setSize] = useState({ width: 0, height: 0 });
  const themeName = useValue(theme);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(
      ([
        {
          contentRect: { width, height },
        },
      ]) => setSize({ width, height }),
    );
    observer.observe(canvas.current!.parentElement!);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(
    () => paintHistogram(canvas.current!, view, size, cursor, themeName),
    [view, size, cursor, themeName],
  );
  const hover = (event: MouseEvent): void => setCursor(cellAt(view, size, event.offsetX, event.offsetY));
  const move = (event: KeyboardEvent): void => {
    if (event.key === "Escape") return setCursor(null);
    const [bin, column] = cursor ?? [0, view.x.length - 1];
    const key = { ArrowUp: "ArrowDown", ArrowDown: "ArrowUp" }[event.key] ?? event.key; // rows of the picture count upwards
    const target = moveCursor(key, [bin, column], { rows: view.bins.length, columns: view.x.length });
    if (!target) return;
    event.preventDefault();
    setCursor([target[0], target[1]]);
  };
  return (
    <div class="plot">
      <div class="tools">
        <output class="reading" aria-live="polite">
          {cursor ? describeCell(view, ...cursor) : "Point at the picture, or go through it with the arrows."}
        </output>
        <div class="row end" role="group" aria-label="Export histogram">
          <button class="quiet" onClick={() => saveCsv(view, name)}>
            <Icon name="down" /> CSV
          </button>
          <button class="quiet" onClick={() => savePicture(canvas.current!, name)}>
            <Icon name="down" /> PNG
          </button>
        </div>
      </div>
      <ShareScale largest={view.largest} themeName={themeName} />
      <div class="chart histogram">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`${title}: histograms of ${view.x.length} steps. Arrows read them.`}
          onMouseMove={hover}
          onMouseLeave={() => setCursor(null)}
          onKeyDown={move}
        />
      </div>
    </div>
  );
}

function ShareScale({ largest, themeName }: { largest: number; themeName: Theme }) {
  const colours = [0.0001, 0.25, 0.5, 0.75, 1].map((share) => shareColour(share * largest, largest, themeName));
  return (
    <div class="share-scale" role="img" aria-label={`Colours from 0% to ${formatShare(largest)} of a step's values`}>
      <span class="soft">Share of a step's values</span> <span>0%</span>
      <span class="bar" style={{ background: `linear-gradient(to right, ${colours.join(", ")})` }} />
      <span>{formatShare(largest)}</span>
    </div>
  );
}

function formatShare(share: number): string {
  return `${formatNumber(100 * share, share < 0.01 ? 1 : 3)}%`;
}

function describeCell({ xLabel, x, bins, counts, totals }: HistogramView, bin: number, column: number): string {
  const { low, high, isGap } = bins[bin];
  const range =
    low === -Infinity
      ? `below ${formatNumber(high, 3)}`
      : high === Infinity
        ? `from ${formatNumber(low, 3)} on`
        : `from ${formatNumber(low, 3)} to ${formatNumber(high, 3)}`;
  const share = isGap
    ? "no value"
    : `${formatShare(counts[column][bin] / (totals[column] || 1))} of ${totals[column]} values`;
  return `${xLabel} ${formatNumber(x[column])}: ${share} ${range}`;
}

// -- painting --------------------------------------------------------------------------------------------------------

interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

function areaOf({ width, height }: { width: number; height: number }): Area {
  return {
    left: MARGIN.left,
    top: MARGIN.top,
    width: Math.max(1, width - MARGIN.left - MARGIN.right),
    height: Math.max(1, height - MARGIN.top - MARGIN.bottom),
  };
}

// The square root makes small shares visible; none at all has the colour of the paper.
function shareColour(share: number, largest: number, themeName: Theme): string {
  const strength = share > 0 ? FAINTEST + (1 - FAINTEST) * Math.sqrt(share / (largest || 1)) : 0;
  const [paper, accent, strongest] = [themeColour("--panel"), themeColour("--accent"), STRONGEST[themeName]].map(
    parseColour,
  );
  const [from, to, part] =
    strength < 0.6 ? [paper, accent, strength / 0.6] : [accent, strongest, (strength - 0.6) / 0.4];
  return `rgb(${from.map((channel, index) => Math.round(channel + (to[index] - channel) * part)).join(" ")})`;
}

function paintHistogram(
  canvas: HTMLCanvasElement,
  view: HistogramView,
  size: { width: number; height: number },
  cursor: [number, number] | null,
  themeName: Theme,
): void {
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(size.width * scale), Math.round(size.height * scale)];
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  const area = areaOf(size);
  const [xAt, yAt] = [
    xScale(view, area),
    (bin: number): number => area.top + area.height * (1 - bin / view.bins.length),
  ];
  view.counts.forEach((counts, column) => {
    const [left, right] = [Math.round(xAt(view.bounds[column])), Math.round(xAt(view.bounds[column + 1]))];
    counts.forEach((count, bin) => {
      if (!count) return;
      const [top, bottom] = [Math.round(yAt(bin + 1)), Math.round(yAt(bin))];
      context.fillStyle = shareColour(count / (view.totals[column] || 1), view.largest, themeName);
      context.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
    });
  });
  paintGaps(context, view, area, yAt);
  paintAxes(context, view, area, xAt, yAt);
  if (!cursor) return;
  const [bin, column] = cursor;
  const [left, right] = [xAt(view.bounds[column]), xAt(view.bounds[column + 1])];
  context.strokeStyle = themeColour("--ink");
  context.strokeRect(
    left + 0.5,
    yAt(bin + 1) + 0.5,
    Math.max(1, right - left - 1),
    Math.max(1, yAt(bin) - yAt(bin + 1) - 1),
  );
}

function xScale({ bounds }: HistogramView, { left, width }: Area): (x: number) => number {
  const [low, high] = [bounds[0], bounds[bounds.length - 1]];
  return (x) => left + (width * (x - low)) / (high - low || 1);
}

// A stretch of values that never occurred: the axis is broken here.
function paintGaps(
  context: CanvasRenderingContext2D,
  { bins }: HistogramView,
  { left, width }: Area,
  yAt: (bin: number) => number,
): void {
  context.strokeStyle = themeColour("--line");
  context.setLineDash([2, 4]);
  bins.forEach(
    ({ isGap }, bin) =>
      isGap &&
      strokeLine(context, left, Math.round(yAt(bin + 0.5)) + 0.5, left + width, Math.round(yAt(bin + 0.5)) + 0.5),
  );
  context.setLineDash([]);
}

function paintAxes(
  context: CanvasRenderingContext2D,
  view: HistogramView,
  area: Area,
  xAt: (x: number) => number,
  yAt: (bin: number) => number,
): void {
  const { left, top, width, height } = area;
  context.font = FONT;
  context.fillStyle = themeColour("--soft");
  context.strokeStyle = themeColour("--line");
  strokeLine(context, left - 0.5, top, left - 0.5, top + height + 0.5);
  strokeLine(context, left - 0.5, top + height + 0.5, left + width, top + height + 0.5);
  [context.textAlign, context.textBaseline] = ["right", "middle"];
  for (const { at, text } of binTicks(view, height / Y_TICK_PX)) {
    strokeLine(context, left - 5, Math.round(yAt(at)) + 0.5, left - 1, Math.round(yAt(at)) + 0.5);
    context.fillText(formatNumber(text, 2), left - 9, yAt(at));
  }
  [context.textAlign, context.textBaseline] = ["center", "top"];
  const values = ticks(view.x[0], view.x[view.x.length - 1], width / X_TICK_PX, false, true);
  tickTexts(values).forEach((text, index) => {
    strokeLine(
      context,
      Math.round(xAt(values[index])) + 0.5,
      top + height + 1,
      Math.round(xAt(values[index])) + 0.5,
      top + height + 5,
    );
    context.fillText(text, xAt(values[index]), top + height + 8);
  });
  context.fillText(view.xLabel, left + width / 2, top + height + 26);
}

function strokeLine(context: CanvasRenderingContext2D, x: number, y: number, toX: number, toY: number): void {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}

// -- reading and saving ----------------------------------------------------------------------------------------------

function cellAt(
  view: HistogramView,
  size: { width: number; height: number },
  x: number,
  y: number,
): [number, number] | null {
  const { left, top, width, height } = areaOf(size);
  if (x < left || x >= left + width || y < top || y >= top + height) return null;
  const at = xScale(view, { left, top, width, height });
  const column = view.bounds.findIndex((_bound, index) => x < at(view.bounds[index + 1]));
  return [Math.floor((1 - (y - top) / height) * view.bins.length), Math.max(0, column)];
}

function saveCsv(view: HistogramView, name: string): void {
  const { names, rows } = histogramRows(view);
  download(`${name}_histogram.csv`, formatCsv(names, rows), "text/csv");
}

function savePicture(canvas: HTMLCanvasElement, name: string): void {
  const output = document.createElement("canvas");
  [output.width, output.height] = [canvas.width, canvas.height];
  const context = output.getContext("2d")!;
  context.fillStyle = themeColour("--panel");
  context.fillRect(0, 0, output.width, output.height);
  context.drawImage(canvas, 0, 0);
  output.toBlob((blob) => blob && download(`${name}_histogram.png`, blob), "image/png");
}
