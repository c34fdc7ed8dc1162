// The ridgeline plot: outlines behind each other, a readout of the one under the mouse.
import { useState } from "preact/hooks";

import { formatNumber } from "../tables/value_format";
import type { HistogramView } from "./histogram_view";
import { ridgePath, ridgesOf, ridgeTicks } from "./ridgelines";

const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [900, 540, 64, 120, 30];
const TALL = 110; // of the largest share

/** Histograms over time as ridgelines. */
export function RidgelinePlot({ title, view }: { title: string; view: HistogramView }) {
  const ridges = ridgesOf(view);
  const [hovered, setHovered] = useState(-1);
  const [inner, depth] = [WIDTH - LEFT - 16, HEIGHT - TOP - BOTTOM];
  const shown = ridges[hovered] ?? ridges[ridges.length - 1];
  const press = (event: KeyboardEvent): void => {
    const last = ridges.length - 1;
    const from = hovered < 0 ? last : hovered;
    const target = { ArrowUp: from - 1, ArrowDown: from + 1, Home: 0, End: last, Escape: -1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    setHovered(event.key === "Escape" ? -1 : Math.max(0, Math.min(last, target)));
  };
  return (
    <div class="ridgelines">
      <p class="reading" role="status">
        {view.xLabel} <b>{formatNumber(shown.x)}</b>
        {hovered < 0 && " in front"}
      </p>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="application"
        tabindex={0}
        aria-label={`${title}: histograms over ${view.xLabel}, from ${ridges[0].x} to ${ridges[ridges.length - 1].x}. Arrows go through them.`}
        onKeyDown={press}
        onBlur={() => setHovered(-1)}
      >
        <g transform={`translate(${LEFT} 0)`} onMouseLeave={() => setHovered(-1)}>
          {ridges.map(({ x, base, heights }, index) => (
            <path
              key={x}
              class={index === hovered ? "ridge on" : "ridge"}
              d={ridgePath(heights, inner, TOP + base * depth, TALL)}
              onMouseEnter={() => setHovered(index)}
              onPointerDown={() => setHovered(index)}
            >
              <title>{`${view.xLabel} ${x}`}</title>
            </path>
          ))}
          {ridgeTicks(view).map(({ at, text }) => (
            <text key={text} x={at * inner} y={HEIGHT - 8} text-anchor="middle">
              {formatNumber(text, 3)}
            </text>
          ))}
        </g>
        {[ridges[0], ridges[ridges.length - 1]].map(({ x, base }, end) => (
          <text key={end} x={LEFT - 8} y={TOP + base * depth} text-anchor="end">
            {formatNumber(x)}
          </text>
        ))}
      </svg>
    </div>
  );
}
