// Rows as points along two axes.
import { useState } from "preact/hooks";

import { ticks, tickTexts } from "../plots/axis_ticks";
import { plain } from "./value_format";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 400, 56, 44];
const [SIGN, LINE] = [6, 12]; // about the size of a letter

/** The picture; the mouse and the arrows go from point to point. */
export function Scatter({ labels, points, explained }: { labels: string[]; points: [number, number][]; explained: number[] }) {
  const [at, setAt] = useState<number | null>(null);
  const [x, y] = [0, 1].map((axis) => rangeOf(points.map((point) => point[axis])));
  const across = (value: number): number => LEFT + ((value - x[0]) / (x[1] - x[0])) * (WIDTH - LEFT - 12);
  const up = (value: number): number => HEIGHT - BOTTOM - ((value - y[0]) / (y[1] - y[0])) * (HEIGHT - BOTTOM - 12);
  const order = points.map((_point, row) => row).sort((a, b) => points[a][0] - points[b][0]);
  const move = (event: KeyboardEvent): void => {
    const place = at === null ? -1 : order.indexOf(at);
    const to = { ArrowLeft: place - 1, ArrowUp: place - 1, ArrowRight: place + 1, ArrowDown: place + 1, Home: 0, End: order.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setAt(order[Math.min(order.length - 1, Math.max(0, to))]);
  };
  const places = points.map((point): [number, number] => [across(point[0]), up(point[1])]);
  const sides = sidesOf(places, labels.map((label) => short(label).length * SIGN));
  const title = (axis: number): string => `axis ${axis + 1} · ${plain((explained[axis] ?? 0) * 100, 3)}% of the variance`;
  return (
    <>
      <output class="reading">{at === null ? "Point at the picture, or go through it with the arrows." : `${labels[at]}: ${plain(points[at][0], 4)}, ${plain(points[at][1], 4)}`}</output>
      <svg class="scatter" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} tabindex={0} role="img" aria-label={`${points.length} rows along two axes; arrows read them`} onKeyDown={move}>
        <Axis values={ticks(...x, 8, false)} place={across} flat />
        <Axis values={ticks(...y, 6, false)} place={up} />
        <text class="soft" x={(LEFT + WIDTH) / 2} y={HEIGHT - 8} text-anchor="middle">{title(0)}</text>
        <text class="soft" transform={`translate(12 ${(HEIGHT - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">{title(1)}</text>
        {places.map((_place, row) => {
          const [left, top] = places[row];
          const end = sides[row] === "left";
          return (
            <g key={row} class={row === at ? "point on" : "point"} onMouseEnter={() => setAt(row)}>
              <circle cx={left} cy={top} r={row === at ? 6 : 4} />
              {(sides[row] || row === at) && (
                <text x={end ? left - 7 : left + 7} y={top + 4} text-anchor={end ? "end" : "start"}>{short(labels[row])}</text>
              )}
            </g>
          );
        })}
      </svg>
    </>
  );
}

/** On which side of its point each label has room; "": on none. */
export function sidesOf(places: [number, number][], widths: number[]): ("right" | "left" | "")[] {
  const taken = places.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  return places.map(([x, y], row) => {
    for (const side of ["right", "left"] as const) {
      const from = side === "right" ? x + 7 : x - 7 - widths[row];
      const box = [from, y - LINE / 2, from + widths[row], y + LINE / 2];
      if (box[0] < LEFT || box[2] > WIDTH) continue;
      if (taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      return side;
    }
    return "";
  });
}

function Axis({ values, place, flat = false }: { values: number[]; place: (value: number) => number; flat?: boolean }) {
  const texts = tickTexts(values);
  return (
    <>
      {values.map((value, index) => {
        const at = place(value);
        return (
          <g key={value} class="soft">
            {flat ? <line x1={at} x2={at} y1={12} y2={HEIGHT - BOTTOM} /> : <line x1={LEFT} x2={WIDTH - 12} y1={at} y2={at} />}
            {flat ? <text x={at} y={HEIGHT - BOTTOM + 16} text-anchor="middle">{texts[index]}</text> : <text x={LEFT - 6} y={at + 4} text-anchor="end">{texts[index]}</text>}
          </g>
        );
      })}
    </>
  );
}

function rangeOf(values: number[]): [number, number] {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const air = (high - low) * 0.08 || 1;
  return [low - air, high + air];
}

/** A label that fits beside a point or a branch. */
export function short(label: string, most = 20): string {
  return label.length > most ? `${label.slice(0, most - 1)}…` : label;
}
