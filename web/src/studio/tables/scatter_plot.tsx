// A scatter plot of rows along two axes.
import { useState } from "preact/hooks";

import { ticks, tickTexts } from "../plots/axis_ticks";
import { formatValue } from "./value_format";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 400, 56, 44];
const [CHAR_WIDTH, LINE_HEIGHT] = [6, 12]; // approximate character size

/** The plot; mouse and arrow keys move from point to point. */
export function ScatterPlot({
  labels,
  points,
  explained,
}: {
  labels: string[];
  points: [number, number][];
  explained: number[];
}) {
  const [cursor, setCursor] = useState<number | null>(null);
  const [x, y] = [0, 1].map((axis) => paddedRange(points.map((point) => point[axis])));
  const toX = (value: number): number => LEFT + ((value - x[0]) / (x[1] - x[0])) * (WIDTH - LEFT - 12);
  const toY = (value: number): number => HEIGHT - BOTTOM - ((value - y[0]) / (y[1] - y[0])) * (HEIGHT - BOTTOM - 12);
  const order = points.map((_point, row) => row).sort((a, b) => points[a][0] - points[b][0]);
  const move = (event: KeyboardEvent): void => {
    const rank = cursor === null ? -1 : order.indexOf(cursor);
    const target = {
      ArrowLeft: rank - 1,
      ArrowUp: rank - 1,
      ArrowRight: rank + 1,
      ArrowDown: rank + 1,
      Home: 0,
      End: order.length - 1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    setCursor(order[Math.min(order.length - 1, Math.max(0, target))]);
  };
  const positions = points.map((point): [number, number] => [toX(point[0]), toY(point[1])]);
  const sides = labelSides(
    positions,
    labels.map((label) => shorten(label).length * CHAR_WIDTH),
  );
  const title = (axis: number): string =>
    `axis ${axis + 1} · ${formatValue((explained[axis] ?? 0) * 100, 3)}% of the variance`;
  return (
    <>
      <output class="reading">
        {cursor === null
          ? "Point at the picture, or go through it with the arrows."
          : `${labels[cursor]}: ${formatValue(points[cursor][0], 4)}, ${formatValue(points[cursor][1], 4)}`}
      </output>
      <svg
        class="scatter"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        tabindex={0}
        role="img"
        aria-label={`${points.length} rows along two axes; arrows read them`}
        onKeyDown={move}
      >
        <AxisTicks values={ticks(...x, 8, false)} place={toX} isHorizontal />
        <AxisTicks values={ticks(...y, 6, false)} place={toY} />
        <text class="soft" x={(LEFT + WIDTH) / 2} y={HEIGHT - 8} text-anchor="middle">
          {title(0)}
        </text>
        <text class="soft" transform={`translate(12 ${(HEIGHT - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">
          {title(1)}
        </text>
        {positions.map((_point, row) => {
          const [left, top] = positions[row];
          const isLeft = sides[row] === "left";
          return (
            <g key={row} class={row === cursor ? "point on" : "point"} onMouseEnter={() => setCursor(row)}>
              <circle cx={left} cy={top} r={row === cursor ? 6 : 4} />
              {(sides[row] || row === cursor) && (
                <text x={isLeft ? left - 7 : left + 7} y={top + 4} text-anchor={isLeft ? "end" : "start"}>
                  {shorten(labels[row])}
                </text>
              )}
            </g>
          );
        })}
      </svg>
    </>
  );
}

/** The side of each point on which its label fits; "": neither. */
export function labelSides(positions: [number, number][], widths: number[]): ("right" | "left" | "")[] {
  const occupied = positions.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  return positions.map(([x, y], row) => {
    for (const side of ["right", "left"] as const) {
      const left = side === "right" ? x + 7 : x - 7 - widths[row];
      const box = [left, y - LINE_HEIGHT / 2, left + widths[row], y + LINE_HEIGHT / 2];
      if (box[0] < LEFT || box[2] > WIDTH) continue;
      if (occupied.some((taken) => box[0] < taken[2] && taken[0] < box[2] && box[1] < taken[3] && taken[1] < box[3]))
        continue;
      occupied.push(box);
      return side;
    }
    return "";
  });
}

function AxisTicks({
  values,
  place,
  isHorizontal = false,
}: {
  values: number[];
  place: (value: number) => number;
  isHorizontal?: boolean;
}) {
  const texts = tickTexts(values);
  return (
    <>
      {values.map((value, index) => {
        const position = place(value);
        return (
          <g key={value} class="soft">
            {isHorizontal ? (
              <line x1={position} x2={position} y1={12} y2={HEIGHT - BOTTOM} />
            ) : (
              <line x1={LEFT} x2={WIDTH - 12} y1={position} y2={position} />
            )}
            {isHorizontal ? (
              <text x={position} y={HEIGHT - BOTTOM + 16} text-anchor="middle">
                {texts[index]}
              </text>
            ) : (
              <text x={LEFT - 6} y={position + 4} text-anchor="end">
                {texts[index]}
              </text>
            )}
          </g>
        );
      })}
    </>
  );
}

function paddedRange(values: number[]): [number, number] {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const padding = (high - low) * 0.08 || 1;
  return [low - padding, high + padding];
}

/** Shorten a label to fit beside a point or a branch. */
export function shorten(label: string, maxLength = 20): string {
  return label.length > maxLength ? `${label.slice(0, maxLength - 1)}…` : label;
}
