// A unit's variables over all recorded moments, as lines.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Json } from "../../messages";
import { useValue, type Selection } from "../../store";
import { theme } from "../../theme";
import { record, type Board } from "../presenter";
import { drawStrange } from "../../plots/non_finite_marks";
import { withNumbers } from "../../non_finite";
import { short } from "./colour_legend";

export const INKS = ["#2a78d6", "#e07b00", "#12946a", "#c9377f", "#7b61d1", "#8a6d00"];
const REFRESH_MS = 400;
const MOST = 32; // variables that the server answers at once

interface Lines {
  moments: number[];
  steps: number[];
  values: ReadonlyMap<string, (number | null)[]>;
}

/** The plot and its switches. */
export function Trace({ board, selection }: { board: Board; selection: Selection }) {
  const net = useValue(board.store.net);
  const all = (net?.variables ?? []).filter(({ of }) => of !== "weight").map(({ name }) => name);
  const names = all.slice(0, MOST);
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
      {all.length > MOST && (
        <p class="soft">
          The first {MOST} of {all.length} variables.
        </p>
      )}
      {lines ? (
        <Plot board={board} lines={lines} names={names} shown={shown} />
      ) : (
        <p class="soft">{lines === undefined ? "Loading…" : "Nothing was recorded yet."}</p>
      )}
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

// Asked again as moments come, not more than a few times a second, and never twice at once; null where there are none.
function useLines(board: Board, { layer, unit }: Selection, names: string[]): Lines | null | undefined {
  const { item } = useValue(board.store.look);
  const [lines, setLines] = useState<Lines | null | undefined>(undefined);
  const variables = names.join("\n");
  useEffect(() => {
    let [ended, timer, asking, again] = [false, 0, false, false];
    const ask = async (): Promise<void> => {
      timer = 0;
      if (asking) return void (again = true);
      [asking, again] = [true, false];
      const question = { kind: "ask_trace" as const, layer, unit, variables: names, item };
      const found = names.length ? await board.store.ask(question).catch(() => undefined) : null;
      asking = false;
      if (ended) return;
      if (found !== undefined) setLines(linesOf(found)); // asked in vain: what is drawn stays
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
  const known = new Map<string, (number | null)[]>();
  for (const [name, list] of Object.entries(record(values ?? null))) {
    if (Array.isArray(list)) known.set(name, list.map(withNumbers).map((one) => (typeof one === "number" ? one : null))); // prettier-ignore
  }
  const lines = { moments: numbers(moments ?? null), steps: numbers(steps ?? null), values: known };
  return lines.moments.length ? lines : null;
}

interface PlotProps {
  board: Board;
  lines: Lines;
  names: string[];
  shown: string[];
}

function Plot({ board, lines, names, shown }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useValue(theme);
  const seen = useValue(board.seen);
  const [pointed, setPointed] = useState<number | null>(null);
  const drawn = useRef({ lines, mark: -1 });
  const mark = lines.moments.indexOf(seen.moment);
  drawn.current = { lines, mark };
  useLayoutEffect(() => {
    const made = new uPlot(optionsFor(host.current!, names, shown, drawn, setPointed), dataOf(lines, names), host.current!);
    plot.current = made;
    const resizing = new ResizeObserver(() => made.setSize({ width: host.current?.clientWidth || 240, height: 170 }));
    resizing.observe(host.current!);
    return () => {
      resizing.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [now, names.join("\n"), shown.join("\n")]);
  useLayoutEffect(() => plot.current?.setData(dataOf(lines, names)), [lines]);
  useLayoutEffect(() => plot.current?.redraw(false), [seen.moment]);
  const last = lines.moments.length - 1;
  const at = Math.min(last, pointed ?? (mark < 0 ? last : mark));
  const walk = (event: KeyboardEvent): void => {
    const to = walked(event.key, at, last);
    if (to === null) return;
    event.preventDefault();
    setPointed(to);
    const left = plot.current?.valToPos(xOf(lines)[to], "x") ?? 0;
    plot.current?.setCursor({ left, top: 10 }, false);
  };
  const read = `step ${lines.steps[at]}: ${shown.map((name) => `${name} ${valueAt(lines, name, at)}`).join(", ")}`;
  return (
    <>
      <div
        ref={host}
        class="network-plot"
        role="slider"
        tabIndex={0}
        aria-label={`${shown.length} ${shown.length === 1 ? "line" : "lines"} over ${last + 1} moments`}
        aria-valuemin={0}
        aria-valuemax={last}
        aria-valuenow={at}
        aria-valuetext={read}
        onKeyDown={walk}
      />
      <output class="network-readout" aria-live="off">
        <span>step {lines.steps[at]}</span>{" "}
        {names.map((name, n) => shown.includes(name) && (
          <span key={name}>
            <Swatch ink={INKS[n % INKS.length]} /> {name} <b>{valueAt(lines, name, at)}</b>
          </span>
        ))}
      </output>
    </>
  ); // prettier-ignore
}

function walked(key: string, at: number, last: number): number | null {
  if (key === "ArrowLeft" || key === "ArrowDown") return Math.max(0, at - 1);
  if (key === "ArrowRight" || key === "ArrowUp") return Math.min(last, at + 1);
  return key === "Home" ? 0 : key === "End" ? last : null;
}

function valueAt({ values }: Lines, name: string, at: number): string {
  const value = values.get(name)?.[at];
  return typeof value === "number" ? short(value) : "–";
}

// Steps; where they begin anew (after Init) the number of the moment, as lines must not run backwards.
function xOf({ steps }: Lines): number[] {
  return steps.every((step, n) => !n || step >= steps[n - 1]) ? steps : steps.map((_, n) => n);
}

function dataOf(lines: Lines, names: string[]): uPlot.AlignedData {
  const finite = (value: number | null): number | null => (value !== null && Number.isFinite(value) ? value : null);
  return [xOf(lines), ...names.map((name) => lines.values.get(name)?.map(finite) ?? lines.steps.map(() => null))];
}

type Drawn = { current: { lines: Lines; mark: number } };

function optionsFor(host: HTMLElement, names: string[], shown: string[], drawn: Drawn, point: (at: number | null) => void): uPlot.Options { // prettier-ignore
  const style = getComputedStyle(host);
  const [ink, grid] = [style.color, style.getPropertyValue("--net-grid").trim() || "#8884"];
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, size: 4 }, font: "11px system-ui, sans-serif" }; // prettier-ignore
  return {
    width: host.clientWidth || 240, height: 170, legend: { show: false }, cursor: { y: false },
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 24, gap: 3, space: 56, values: (_, ticks) => ticks.map((tick) => stepAt(drawn.current.lines, tick)) },
      { ...axis, size: 46, gap: 3, values: (_, ticks) => ticks.map(short) },
    ],
    series: [
      {},
      ...names.map((label, n) => ({ label, stroke: INKS[n % INKS.length], width: 1.5, show: shown.includes(label), points: { show: false } })), // prettier-ignore
    ],
    hooks: {
      draw: [
        (plot) => drawMark(plot, plot.data[0][drawn.current.mark], ink),
        (plot) => shown.forEach((name) => drawStrange(plot, drawn.current.lines.values.get(name) ?? [], INKS[names.indexOf(name) % INKS.length])),
      ],
      setCursor: [(plot) => point(plot.cursor.idx ?? null)],
    },
  }; // prettier-ignore
}

// What the axis says at one of its places; nothing between two steps.
function stepAt(lines: Lines, x: number): string {
  const step = xOf(lines) === lines.steps ? x : lines.steps[x];
  return Number.isInteger(step) ? String(step) : "";
}

// Where the picture stands in time.
function drawMark(plot: uPlot, position: number | undefined, ink: string): void {
  if (position === undefined) return;
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
