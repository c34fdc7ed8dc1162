// Parallel coordinates of runs: an axis for each shown column, a line for each run, coloured by the last axis.
import { useMemo } from "preact/hooks";

import { useValue } from "../store";
import { axesOf, nearestRun, nextRun, type RunAxis } from "./run_axes";
import { columns, current, runLabel, shownColumns, visibleColumns, type RunRows } from "./run_list";

const MOST_LINES = 1000;
const MOST_AXES = 12;
const REACH_PX = 14; // from a line to a finger
const [WIDTH_PER_AXIS, HEIGHT, TOP, BOTTOM, SIDE] = [96, 560, 56, 28, 56];

/** The panel: of the checked runs, or of all that are listed. */
export function ParallelPanel({ list, rows }: { list: RunRows; rows: number[] }) {
  const all = useValue(columns);
  const names = visibleColumns(all, useValue(shownColumns))
    .filter(({ group }) => group !== "run")
    .reverse() // of the results the first of the list, a loss, comes last, and has the colours
    .sort((a, b) => Number(a.group === "result") - Number(b.group === "result"))
    .map(({ name }) => name);
  const drawn = rows.slice(0, MOST_LINES);
  const axes = useMemo(() => axesOf(list, names, drawn).slice(-MOST_AXES), [list, names.join("\n"), drawn.join()]);
  const focused = useValue(current);
  const at = drawn.findIndex((row) => list.ids[row] === focused);
  if (axes.length < 2) {
    return (
      <p class="empty">
        Two columns in which these runs differ make a picture: choose some by “Columns”, or fewer runs less alike.
      </p>
    );
  }
  return (
    <div class="parallel">
      <Picture list={list} rows={drawn} axes={axes} />
      <p class="soft remark">
        {drawn.length} of {rows.length} runs, coloured by {axes[axes.length - 1].name}. The axes are the list’s columns.
        {at >= 0 && (
          <span role="status">
            {" "}
            Current run: <b>{runLabel(list, drawn[at])}</b>
          </span>
        )}
      </p>
    </div>
  );
}

function Picture({ list, rows, axes }: { list: RunRows; rows: number[]; axes: RunAxis[] }) {
  const focused = useValue(current);
  const width = 2 * SIDE + (axes.length - 1) * WIDTH_PER_AXIS;
  const x = (axis: number): number => SIDE + axis * WIDTH_PER_AXIS;
  const colours = axes[axes.length - 1].places;
  const pick = (run: number): void => {
    if (run >= 0) current.set(list.ids[rows[run]]);
  };
  const pickAt = (event: MouseEvent & { currentTarget: SVGSVGElement }): void => {
    const box = event.currentTarget.getBoundingClientRect();
    const scale = Math.min(box.width / width, box.height / HEIGHT); // it is drawn as large as fits, in the middle
    const [left, top] = [(box.width - width * scale) / 2, (box.height - HEIGHT * scale) / 2];
    const at = ((event.clientX - box.left - left) / scale - SIDE) / WIDTH_PER_AXIS;
    const height = (HEIGHT - BOTTOM - (event.clientY - box.top - top) / scale) / (HEIGHT - TOP - BOTTOM);
    pick(nearestRun(axes, at, height, REACH_PX / scale / (HEIGHT - TOP - BOTTOM)));
  };
  const press = (event: KeyboardEvent): void => {
    const run = nextRun(
      axes,
      rows.findIndex((row) => list.ids[row] === focused),
      event.key,
    );
    if (run < 0) return;
    event.preventDefault();
    event.stopPropagation();
    pick(run);
  };
  const order = [...rows.keys()].sort((a, b) => isFocused(list, rows[a], focused) - isFocused(list, rows[b], focused));
  return (
    <svg
      viewBox={`0 0 ${width} ${HEIGHT}`}
      role="application"
      aria-label={`Runs over ${axes.map(({ name }) => name).join(", ")}. Arrows go from run to run.`}
      tabindex={0} // Preact sets tabIndex as an attribute, which SVG does not know
      onClick={pickAt}
      onKeyDown={press}
    >
      {order.map((index) => (
        <path
          key={list.ids[rows[index]]}
          class={isFocused(list, rows[index], focused) ? "run-line current" : "run-line"}
          style={{ "--share": `${Math.round(100 * (colours[index] ?? 0))}%` }}
          d={pathOf(axes, index, x)}
        >
          <title>{runLabel(list, rows[index])}</title>
        </path>
      ))}
      {axes.map((axis, index) => (
        <Axis key={axis.name} axis={axis} x={x(index)} />
      ))}
    </svg>
  );
}

function isFocused(list: RunRows, row: number, focused: number): number {
  return Number(list.ids[row] === focused);
}

function y(place: number): number {
  return HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
}

// A run without a value on an axis has a gap there.
function pathOf(axes: RunAxis[], index: number, x: (axis: number) => number): string {
  let isDown = false;
  return axes
    .map(({ places }, axis) => {
      const place = places[index];
      const command = place === null ? "" : `${isDown ? "L" : "M"}${x(axis)} ${y(place).toFixed(1)}`;
      isDown = place !== null;
      return command;
    })
    .join("");
}

function Axis({ axis, x }: { axis: RunAxis; x: number }) {
  return (
    <g class="run-axis">
      <line x1={x} x2={x} y1={TOP} y2={HEIGHT - BOTTOM} />
      <text x={x} y={TOP - 28} text-anchor="middle" class="name">
        {axis.name.length > 18 ? `…${axis.name.slice(-17)}` : axis.name}
        <title>{axis.name}</title>
      </text>
      {axis.ticks.map(({ at, text }) => (
        <text key={text} x={x + 6} y={y(at) + 4}>
          {text.length > 12 ? `${text.slice(0, 11)}…` : text}
        </text>
      ))}
    </g>
  );
}
