// Which line is meant by a click: the nearest one, if it is near.
import type uPlot from "uplot";

import type { PlotView } from "./plot_view";

const NEAR_PX = 24;
const DRAG_PX = 4; // the mouse moved by more: a zoom, not a click

/** Call `pick` with the line that is clicked; `first` is the number of its series in the plot. */
export function listenForPicks(
  plot: uPlot,
  view: () => PlotView,
  first: () => number,
  pick: (line: number) => void,
): void {
  let start = { x: 0, y: 0 };
  plot.over.addEventListener("pointerdown", ({ clientX, clientY }) => (start = { x: clientX, y: clientY }));
  plot.over.addEventListener("click", ({ clientX, clientY }) => {
    if (Math.hypot(clientX - start.x, clientY - start.y) > DRAG_PX) return;
    const box = plot.over.getBoundingClientRect();
    const line = nearestLine(plot, view(), first(), clientX - box.left, clientY - box.top);
    if (line >= 0) pick(line);
  });
}

function nearestLine(plot: uPlot, { lines }: PlotView, first: number, x: number, y: number): number {
  let [nearest, least] = [-1, NEAR_PX];
  lines.forEach(({ values }, line) => {
    const scale = plot.series[first + line]?.scale;
    const value = scale ? interpolate(plot.data[0] as number[], values, plot.posToVal(x, "x")) : null;
    if (value === null) return;
    const distance = Math.abs(plot.valToPos(value, scale!) - y);
    if (distance < least) [nearest, least] = [line, distance];
  });
  return nearest;
}

/** The value of a line at x, between its nearest points; null outside of them. */
export function interpolate(x: number[], values: (number | null | undefined)[], at: number): number | null {
  let right = x.findIndex((place) => place >= at);
  if (right < 0) right = x.length - 1;
  let left = right;
  while (left >= 0 && (typeof values[left] !== "number" || x[left] > at)) left--;
  while (right < x.length && typeof values[right] !== "number") right++;
  const [from, to] = [values[left] as number | undefined, values[right] as number | undefined];
  if (from === undefined || to === undefined) return from ?? to ?? null;
  return x[right] === x[left] ? to : from + ((to - from) * (at - x[left])) / (x[right] - x[left]);
}
