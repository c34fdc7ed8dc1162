// The plot: chart, readout and toolbar.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { useValue } from "../signal";
import { Icon } from "../shell/icons";
import { formatValue } from "../tables/value_format";
import { theme } from "../theme";
import { Chart } from "./chart";
import { updateChoices } from "./plot_choices";
import { plotCsv, savePng, saveSvg } from "./plot_export";
import { download } from "../tables/csv";
import { shownPlot } from "./plot_keys";
import { lineStroke } from "./line_palette";
import { FULL_ZOOM, indexRange, zoomX, type PlotView } from "./plot_view";

interface PlotProps {
  name: string; // the table's name
  title: string;
  view: PlotView;
  zoomed: boolean;
  pick?: (group: string) => void; // a line was clicked
}

const MAX_READOUT = 24; // lines whose values are listed

/** A chart that follows its view. */
export function Plot({ name, title, view, zoomed, pick }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const [hovered, setHovered] = useState<number | null>(null);
  const themeName = useValue(theme);
  const chart = useChart(host, name, setHovered, pick);
  useLayoutEffect(() => chart.current?.show(view, themeName), [view, themeName]);
  useLayoutEffect(() => shownPlot.set({ name, view }), [name, view]);
  useLayoutEffect(() => () => shownPlot.set(null), []);
  const [announcement, setAnnouncement] = useState("");
  const move = (event: KeyboardEvent): void => {
    const target = moveReadout(event.key, hovered, indexRange(view.x, view.xRange));
    if (target === undefined) return;
    event.preventDefault(); // the arrows move the readout, not the zoom
    chart.current?.point(target);
    setAnnouncement(target === null ? "" : describeRow(view, target));
  };
  return (
    <div class="plot">
      <PlotTools name={name} title={title} view={view} zoomed={zoomed} canvas={() => chart.current?.canvas ?? null} />
      <Readout view={view} index={hovered} />
      <div
        class={view.lines.length && view.x.length ? "chart" : "chart blank"}
        ref={host}
        tabIndex={0}
        role="img"
        aria-label={`${title}: ${view.lines.map(({ label }) => label).join(", ")}. Arrows read the values.`}
        onKeyDown={move}
        onBlur={() => setAnnouncement("")}
      />
      <span class="unseen" role="status">
        {announcement}
      </span>
      {view.remarks.map((remark) => (
        <p key={remark} class="remark soft">
          {remark}
        </p>
      ))}
    </div>
  );
}

function useChart(
  host: { current: HTMLDivElement | null },
  name: string,
  hover: (index: number | null) => void,
  pick: PlotProps["pick"],
) {
  const picked = useRef(pick);
  picked.current = pick;
  const chart = useRef<Chart | null>(null);
  const table = useRef(name);
  table.current = name;
  useLayoutEffect(() => {
    const newChart = new Chart(host.current!, {
      hover,
      zoom: (zoom) => updateChoices(table.current, { zoom }),
      pick: (line) => picked.current?.(line.group),
    });
    chart.current = newChart;
    const observer = new ResizeObserver(() => newChart.resize());
    observer.observe(host.current!);
    return () => {
      observer.disconnect();
      newChart.destroy();
    };
  }, []);
  return chart;
}

function PlotTools({ name, title, view, zoomed, canvas }: PlotProps & { canvas: () => HTMLCanvasElement | null }) {
  const themeName = useValue(theme);
  const zoom = (factor: number) => () => updateChoices(name, { zoom: { x: zoomX(view, factor), y: null } });
  const saveAs = (save: typeof saveSvg) => () => {
    const element = canvas();
    if (element) save(view, name, title, element, themeName);
  };
  const isEmpty = !view.lines.length || !view.x.length;
  return (
    <div class="tools">
      <div class="group" role="group" aria-label="Zoom">
        <button
          class="quiet"
          aria-label="Zoom in"
          title="Zoom in (+); or drag on the plot"
          disabled={isEmpty}
          onClick={zoom(0.5)}
        >
          <Icon name="plus" />
        </button>
        <button class="quiet" aria-label="Zoom out" title="Zoom out (-)" disabled={isEmpty} onClick={zoom(2)}>
          <Icon name="minus" />
        </button>
        <button
          class="quiet"
          aria-label="Show everything"
          title="Show everything (0, or double click)"
          disabled={!zoomed}
          onClick={() => updateChoices(name, { zoom: FULL_ZOOM })}
        >
          <Icon name="whole" />
        </button>
      </div>
      <div class="row end" role="group" aria-label="Export plot">
        <button
          class="quiet"
          disabled={isEmpty}
          onClick={() => download(`${name}_plot.csv`, plotCsv(view), "text/csv")}
        >
          <Icon name="down" /> CSV
        </button>
        <button class="quiet" disabled={isEmpty} onClick={saveAs(saveSvg)}>
          <Icon name="down" /> SVG
        </button>
        <button class="quiet" disabled={isEmpty} onClick={saveAs(savePng)}>
          <Icon name="down" /> PNG
        </button>
      </div>
    </div>
  );
}

// The legend with values: those under the cursor, otherwise the newest.
function Readout({ view, index }: { view: PlotView; index: number | null }) {
  const themeName = useValue(theme);
  const row = index ?? view.x.length - 1;
  const values = useMemo(() => valuesAt(view, row), [view, row]);
  const isLong = view.lines.length > MAX_READOUT;
  const shown = view.lines.map((line, index) => [line, index] as const).filter(([{ isMarked }]) => !isLong || isMarked);
  return (
    <ul class="readout" aria-label="Lines">
      {view.x.length > 0 && (
        <li>
          <span class="soft">{view.xLabel}</span> <b>{formatValue(view.x[row] ?? null)}</b>
        </li>
      )}
      {shown.length < view.lines.length && (
        <li class="soft">{view.lines.length} lines: click one to see which it is</li>
      )}
      {shown.map(([{ label, number, isMarked }, line]) => (
        <li key={label} class={isMarked ? "marked" : undefined}>
          <span class="swatch" aria-hidden="true" style={{ background: lineStroke(number, themeName).colour }} />
          <span class="soft">{label}</span> <b>{values[line]}</b>
        </li>
      ))}
    </ul>
  );
}

// The readout's new row after a key press; null: back to the newest, undefined: not a readout key.
function moveReadout(key: string, current: number | null, [first, last]: [number, number]): number | null | undefined {
  if (first >= last) return undefined;
  const row = current ?? last;
  const target = {
    ArrowLeft: row - 1,
    ArrowRight: row + 1,
    PageUp: row - 10,
    PageDown: row + 10,
    Home: first,
    End: last - 1,
  }[key];
  if (target !== undefined) return Math.min(last - 1, Math.max(first, target));
  return key === "Escape" && current !== null ? null : undefined;
}

function describeRow(view: PlotView, row: number): string {
  const values = valuesAt(view, row);
  return [
    `${view.xLabel} ${formatValue(view.x[row])}`,
    ...view.lines.map(({ label }, line) => `${label} ${values[line]}`),
  ].join(", ");
}

function valuesAt(view: PlotView, row: number): string[] {
  return view.lines.map(({ values, nonFinite }) => formatValue(nonFinite[row] ?? nearestValue(values, row), 5) || "–");
}

function nearestValue(values: (number | null | undefined)[], row: number): number | null {
  for (let distance = 0; distance < 64; distance++) {
    for (const index of [row - distance, row + distance]) {
      const value = values[index];
      if (typeof value === "number") return value;
      if (value === null && distance === 0) return null;
    }
  }
  return null;
}
