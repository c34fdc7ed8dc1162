// A unit's variables over all recorded moments, as lines.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Json } from "../messages";
import { useValue, type Selection } from "../store";
import { theme } from "../theme";
import { record, type Board } from "./board";
import { short } from "./legend";

export const INKS = ["#2a78d6", "#e07b00", "#12946a", "#c9377f", "#7b61d1", "#8a6d00"];
const REFRESH_MS = 400;

interface Lines {
  moments: number[];
  steps: number[];
  values: Record<string, (number | null)[]>;
}

/** The plot and its switches. */
export function Trace({ board, selection }: { board: Board; selection: Selection }) {
  const net = useValue(board.store.net);
  const names = (net?.variables ?? []).filter(({ of }) => of !== "weight").map(({ name }) => name);
  const [hidden, setHidden] = useState<readonly string[]>([]);
  const shown = names.filter((name) => !hidden.includes(name));
  const lines = useLines(board, selection, names);
  const toggle = (name: string): void =>
    setHidden(hidden.includes(name) ? hidden.filter((one) => one !== name) : [...hidden, name]);
  return (
    <section class="network-trace" aria-label="Over time">
      <h3>Over time</h3>
      <div class="switches" role="group" aria-label="Variables of the plot">
        {names.map((name, n) => (
          <button key={name} class="toggle" aria-pressed={!hidden.includes(name)} onClick={() => toggle(name)}>
            <Swatch ink={INKS[n % INKS.length]} /> {name}
          </button>
        ))}
      </div>
      <Plot board={board} lines={lines} names={names} shown={shown} />
    </section>
  );
}

function Swatch({ ink }: { ink: string }) {
  return (
    <svg width="12" height="8" aria-hidden="true">
      <rect y="3" width="12" height="2.5" fill={ink} />
    </svg>
  );
}

// Asked again as moments come, not more than a few times a second, and never twice at once.
function useLines(board: Board, { layer, unit }: Selection, names: string[]): Lines | null {
  const { item } = useValue(board.store.look);
  const [lines, setLines] = useState<Lines | null>(null);
  const variables = names.join("\n");
  useEffect(() => {
    let [ended, timer, asking, again] = [false, 0, false, false];
    const ask = async (): Promise<void> => {
      timer = 0;
      if (asking) return void (again = true);
      [asking, again] = [true, false];
      const question = { kind: "ask_trace" as const, layer, unit, variables: names, item };
      const found = names.length ? await board.store.ask(question).catch(() => null) : null;
      asking = false;
      if (ended) return;
      setLines(linesOf(found));
      if (again) later();
    };
    const later = (): void => void (timer ||= window.setTimeout(() => void ask(), REFRESH_MS));
    void ask();
    const end = board.store.moments.subscribe(later);
    return () => {
      ended = true;
      window.clearTimeout(timer);
      end();
    };
  }, [layer, unit, item, variables]);
  return lines;
}

function linesOf(found: Json): Lines | null {
  const { moments, steps, values } = record(found);
  const numbers = (list: Json): number[] => (Array.isArray(list) ? list.map(Number) : []);
  const lines: Lines = { moments: numbers(moments ?? null), steps: numbers(steps ?? null), values: {} };
  for (const [name, list] of Object.entries(record(values ?? null))) {
    if (Array.isArray(list)) lines.values[name] = list.map((one) => (typeof one === "number" ? one : null));
  }
  return lines.moments.length ? lines : null;
}

interface PlotProps {
  board: Board;
  lines: Lines | null;
  names: string[];
  shown: string[];
}

function Plot({ board, lines, names, shown }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useValue(theme);
  const seen = useValue(board.seen);
  const mark = useRef(0);
  mark.current = Math.max(-1, lines?.moments.indexOf(seen.moment) ?? -1);
  const several = shown.length;
  useEffect(() => {
    if (!host.current || !lines) return;
    const made = new uPlot(optionsFor(host.current, names, shown, mark), dataOf(lines, names), host.current);
    plot.current = made;
    const resizing = new ResizeObserver(() => made.setSize({ width: host.current?.clientWidth || 240, height: 170 }));
    resizing.observe(host.current);
    return () => {
      resizing.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [now, names.join("\n"), shown.join("\n"), lines === null]);
  useEffect(() => {
    if (lines) plot.current?.setData(dataOf(lines, names));
  }, [lines]);
  useEffect(() => plot.current?.redraw(false), [seen.moment]);
  if (!lines) return <p class="soft">Nothing was recorded yet.</p>;
  const count = lines.moments.length;
  return <div ref={host} class="network-plot" role="img" aria-label={`${several} lines over ${count} moments`} />;
}

function dataOf(lines: Lines, names: string[]): uPlot.AlignedData {
  const x = lines.moments.map((_, n) => n);
  return [x, ...names.map((name) => lines.values[name] ?? x.map(() => null))];
}

function optionsFor(host: HTMLElement, names: string[], shown: string[], mark: { current: number }): uPlot.Options {
  const style = getComputedStyle(host);
  const [ink, grid] = [style.color, style.getPropertyValue("--net-grid").trim() || "#8884"];
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, size: 4 }, font: "11px system-ui, sans-serif" }; // prettier-ignore
  return {
    width: host.clientWidth || 240, height: 170, legend: { show: false }, cursor: { y: false },
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 24, gap: 3 },
      { ...axis, size: 46, gap: 3, values: (_, ticks) => ticks.map(short) },
    ],
    series: [
      {},
      ...names.map((label, n) => ({ label, stroke: INKS[n % INKS.length], width: 1.5, show: shown.includes(label), points: { show: false } })), // prettier-ignore
    ],
    hooks: { draw: [(plot) => drawMark(plot, mark.current, ink)] },
  }; // prettier-ignore
}

// Where the picture stands in time.
function drawMark(plot: uPlot, position: number, ink: string): void {
  if (position < 0) return;
  const x = plot.valToPos(position, "x", true);
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.globalAlpha = 0.5;
  ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}
