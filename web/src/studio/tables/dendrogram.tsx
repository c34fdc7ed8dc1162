// A dendrogram on its side, leaves at the left: which rows were merged, and at which distance.
import { ticks, tickTexts } from "../plots/axis_ticks";
import { shorten } from "./scatter_plot";

const [WIDTH, TOP, ROW, CHAR_WIDTH] = [640, 24, 16, 6.5];

/** A joint of two branches: their ends and its position, in rows and distances. */
export interface Joint {
  from: [number, number]; // distances at which the two branches start
  rows: [number, number];
  distance: number;
}

/** The joints of a tree; `order` gives the row of each leaf. */
export function jointsOf(order: number[], merges: [number, number, number][]): Joint[] {
  const rowOf = new Map(order.map((leaf, place) => [leaf, place]));
  const heights = new Map<number, number>();
  return merges.map(([left, right, distance], index) => {
    const rows: [number, number] = [rowOf.get(left) ?? 0, rowOf.get(right) ?? 0];
    const from: [number, number] = [heights.get(left) ?? 0, heights.get(right) ?? 0];
    rowOf.set(order.length + index, (rows[0] + rows[1]) / 2);
    heights.set(order.length + index, distance);
    return { from, rows, distance };
  });
}

/** The dendrogram. */
export function Dendrogram({
  labels,
  order,
  merges,
}: {
  labels: string[];
  order: number[];
  merges: [number, number, number][];
}) {
  const joints = jointsOf(order, merges);
  const maxDistance = Math.max(...merges.map(([, , distance]) => distance)) || 1;
  const left = 16 + CHAR_WIDTH * Math.max(...labels.map((label) => shorten(label).length));
  const height = TOP + ROW * order.length + 8;
  const x = (distance: number): number => left + (distance / maxDistance) * (WIDTH - left - 24);
  const y = (row: number): number => TOP + ROW * (row + 0.5);
  const tickValues = ticks(0, maxDistance, 6, false);
  const texts = tickTexts(tickValues);
  return (
    <div class="tree" tabIndex={0} role="region" aria-label="Clusters">
      <svg
        viewBox={`0 0 ${WIDTH} ${height}`}
        role="img"
        aria-label={`${order.length} rows, those alike side by side: ${order.map((leaf) => labels[leaf]).join(", ")}`}
      >
        {tickValues.map((mark, index) => (
          <g key={mark} class="soft">
            <line x1={x(mark)} x2={x(mark)} y1={TOP} y2={height} />
            <text x={x(mark)} y={14} text-anchor="middle">
              {texts[index]}
            </text>
          </g>
        ))}
        {order.map((leaf, row) => (
          <text key={leaf} x={left - 8} y={y(row) + 4} text-anchor="end">
            {shorten(labels[leaf])}
            <title>{labels[leaf]}</title>
          </text>
        ))}
        {joints.map(({ from, rows, distance }, index) => (
          <path key={index} d={`M${x(from[0])} ${y(rows[0])}H${x(distance)}V${y(rows[1])}H${x(from[1])}`} />
        ))}
      </svg>
    </div>
  );
}
