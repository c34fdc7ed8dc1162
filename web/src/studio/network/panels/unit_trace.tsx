// A unit's variables over all recorded moments, as a line plot.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Json, UnitTrace as UnitTraceAnswer } from "../../messages";
import { useValue, type Selection } from "../../store";
import { theme } from "../../theme";
import type { NetworkPresenter } from "../presenter";
import { drawNonFinite } from "../../plots/non_finite_marks";
import { parseNumbers } from "../../non_finite";
import { formatShort } from "./colour_legend";

export const LINE_COLOURS = ["#2a78d6", "#e07b00", "#12946a", "#c9377f", "#7b61d1", "#8a6d00"];
const REFRESH_MS = 400;
const MAX_VARIABLES = 32; // maximum number of variables per request

interface TraceLines {
  moments: number[];
  steps: number[];
  values: ReadonlyMap<string, (number | null)[]>;
}

/** The plot and its toggles. */
export function UnitTrace({ presenter, selection }: { presenter: NetworkPresenter; selection: Selection }) {
  const net = useValue(presenter.store.net);
  const all = (net?.variables ?? []).filter(({ of }) => of !== "weight").map(({ name }) => name);
  const names = all.slice(0, MAX_VARIABLES);
  const [hidden, setHidden] = useState<readonly string[]>([]);
  const visibleNames = names.filter((name) => !hidden.includes(name));
  const lines = useTrace(presenter, selection, names);
  const toggle = (name: string): void =>
    setHidden(hidden.includes(name) ? hidden.filter((other) => other !== name) : [...hidden, name]);
  return (
    <section class="network-trace" aria-label="Over time">
      <h3>This unit over time</h3>
      <div class="switches" role="group" aria-label="Variables of the plot">
        {names.map((name, n) => (
          <button key={name} class="toggle" aria-pressed={!hidden.includes(name)} onClick={() => toggle(name)}>
            <TraceSwatch ink={LINE_COLOURS[n % LINE_COLOURS.length]} /> {name}
          </button>
        ))}
      </div>
      {all.length > MAX_VARIABLES && (
        <p class="soft">
          The first {MAX_VARIABLES} of {all.length} variables.
        </p>
      )}
      {lines ? (
        <TracePlot presenter={presenter} lines={lines} names={names} shown={visibleNames} />
      ) : (
        <p class="soft">{lines === undefined ? "Loading…" : "Nothing was recorded yet."}</p>
      )}
    </section>
  );
}

function TraceSwatch({ ink }: { ink: string }) {
  return (
    <svg width="12" height="8" aria-hidden="true">
      <rect y="3" width="12" height="2.5" fill={ink} />
    </svg>
  );
}

// Requested again as moments arrive, throttled to REFRESH_MS, never twice at once; null if there are no moments.
function useTrace(
  presenter: NetworkPresenter,
  { layer, unit }: Selection,
  names: string[],
): TraceLines | null | undefined {
  const { item } = useValue(presenter.store.viewSettings);
  const [lines, setLines] = useState<TraceLines | null | undefined>(undefined);
  const variables = names.join("\n");
  useEffect(() => {
    let [isOver, timer, isAsking, isOutdated] = [false, 0, false, false];
    const ask = async (): Promise<void> => {
      timer = 0;
      if (isAsking) return void (isOutdated = true);
      [isAsking, isOutdated] = [true, false];
      const question = { kind: "ask_trace" as const, layer, unit, variables: names, item };
      const answer = names.length ? await presenter.store.ask(question).catch(() => undefined) : null;
      isAsking = false;
      if (isOver) return;
      if (answer !== undefined) setLines(linesOf(answer)); // the request failed: keep the current plot
      if (isOutdated) askLater();
    };
    const askLater = (): void => void (timer ||= window.setTimeout(() => void ask(), REFRESH_MS));
    void ask();
    const end = presenter.store.moments.subscribe(askLater);
    return () => {
      isOver = true;
      window.clearTimeout(timer);
      end();
    };
  }, [layer, unit, item, variables]);
  return lines;
}

function linesOf(trace: UnitTraceAnswer | null): TraceLines | null {
  if (!trace?.moments.length) return null;
  const finite = (list: Json[]): (number | null)[] =>
    list.map(parseNumbers).map((value) => (typeof value === "number" ? value : null));
  const values = new Map(Object.entries(trace.values).map(([name, list]) => [name, finite(list)]));
  return { moments: trace.moments, steps: trace.steps, values };
}

interface TracePlotProps {
  presenter: NetworkPresenter;
  lines: TraceLines;
  names: string[];
  shown: string[];
}

function TracePlot({ presenter, lines, names, shown }: TracePlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const themeName = useValue(theme);
  const displayed = useValue(presenter.displayed);
  const [cursor, setCursor] = useState<number | null>(null);
  const drawn = useRef({ lines, mark: -1 });
  const mark = lines.moments.indexOf(displayed.moment);
  drawn.current = { lines, mark };
  useLayoutEffect(() => {
    const created = new uPlot(
      plotOptions(host.current!, names, shown, drawn, setCursor),
      traceData(lines, names),
      host.current!,
    );
    plot.current = created;
    const resizing = new ResizeObserver(() =>
      created.setSize({ width: host.current?.clientWidth || 240, height: 170 }),
    );
    resizing.observe(host.current!);
    return () => {
      resizing.disconnect();
      created.destroy();
      plot.current = null;
    };
  }, [themeName, names.join("\n"), shown.join("\n")]);
  useLayoutEffect(() => plot.current?.setData(traceData(lines, names)), [lines]);
  useLayoutEffect(() => plot.current?.redraw(false), [displayed.moment]);
  const last = lines.moments.length - 1;
  const index = Math.min(last, cursor ?? (mark < 0 ? last : mark));
  const moveCursor = (event: KeyboardEvent): void => {
    const target = nextIndex(event.key, index, last);
    if (target === null) return;
    event.preventDefault();
    setCursor(target);
    const left = plot.current?.valToPos(xValues(lines)[target], "x") ?? 0;
    plot.current?.setCursor({ left, top: 10 }, false);
  };
  const valueText = `step ${lines.steps[index]}: ${shown.map((name) => `${name} ${valueAt(lines, name, index)}`).join(", ")}`;
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
        aria-valuenow={index}
        aria-valuetext={valueText}
        onKeyDown={moveCursor}
      />
      <output class="network-readout" aria-live="off">
        <span>step {lines.steps[index]}</span>{" "}
        {names.map((name, n) => shown.includes(name) && (
          <span key={name}>
            <TraceSwatch ink={LINE_COLOURS[n % LINE_COLOURS.length]} /> {name} <b>{valueAt(lines, name, index)}</b>
          </span>
        ))}
      </output>
    </>
  ); // prettier-ignore
}

function nextIndex(key: string, index: number, last: number): number | null {
  if (key === "ArrowLeft" || key === "ArrowDown") return Math.max(0, index - 1);
  if (key === "ArrowRight" || key === "ArrowUp") return Math.min(last, index + 1);
  return key === "Home" ? 0 : key === "End" ? last : null;
}

function valueAt({ values }: TraceLines, name: string, index: number): string {
  const value = values.get(name)?.[index];
  return typeof value === "number" ? formatShort(value) : "–";
}

// Steps; if they start over (after Init), moment indices instead, as lines must not run backwards.
function xValues({ steps }: TraceLines): number[] {
  return steps.every((step, n) => !n || step >= steps[n - 1]) ? steps : steps.map((_, n) => n);
}

function traceData(lines: TraceLines, names: string[]): uPlot.AlignedData {
  const finite = (value: number | null): number | null => (value !== null && Number.isFinite(value) ? value : null);
  return [xValues(lines), ...names.map((name) => lines.values.get(name)?.map(finite) ?? lines.steps.map(() => null))];
}

type DrawnRef = { current: { lines: TraceLines; mark: number } };

function plotOptions(
  host: HTMLElement,
  names: string[],
  visibleNames: string[],
  drawn: DrawnRef,
  point: (at: number | null) => void,
): uPlot.Options {
  // prettier-ignore
  const style = getComputedStyle(host);
  const [ink, grid] = [style.color, style.getPropertyValue("--net-grid").trim() || "#8884"];
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, size: 4 }, font: "11px system-ui, sans-serif" }; // prettier-ignore
  return {
    width: host.clientWidth || 240, height: 170, legend: { show: false }, cursor: { y: false },
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 24, gap: 3, space: 56, values: (_, ticks) => ticks.map((tick) => stepAt(drawn.current.lines, tick)) },
      { ...axis, size: 46, gap: 3, values: (_, ticks) => ticks.map(formatShort) },
    ],
    series: [
      {},
      ...names.map((label, n) => ({ label, stroke: LINE_COLOURS[n % LINE_COLOURS.length], width: 1.5, show: visibleNames.includes(label), points: { show: false } })), // prettier-ignore
    ],
    hooks: {
      draw: [
        (plot) => drawMark(plot, plot.data[0][drawn.current.mark], ink),
        (plot) => visibleNames.forEach((name) => drawNonFinite(plot, drawn.current.lines.values.get(name) ?? [], LINE_COLOURS[names.indexOf(name) % LINE_COLOURS.length])),
      ],
      setCursor: [(plot) => point(plot.cursor.idx ?? null)],
    },
  }; // prettier-ignore
}

// The tick label at a position of the axis; empty between two steps.
function stepAt(lines: TraceLines, x: number): string {
  const step = xValues(lines) === lines.steps ? x : lines.steps[x];
  return Number.isInteger(step) ? String(step) : "";
}

// Draw the time marker: the moment the view shows.
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
