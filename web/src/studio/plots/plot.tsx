// The plot itself: the chart, its readout, and the buttons above it.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { useValue } from "../signal";
import { Icon } from "../shell/icons";
import { plain } from "../tables/value_format";
import { theme } from "../theme";
import { Chart } from "./chart";
import { choose } from "./plot_choices";
import { csvOf, savePng, saveSvg } from "./plot_export";
import { download } from "../tables/csv";
import { shown } from "./plot_keys";
import { stroke } from "./line_palette";
import { WHOLE, indices, zoomedX, type View } from "./plot_view";

interface Props {
  name: string; // of the table
  title: string;
  view: View;
  zoomed: boolean;
}

/** A chart that follows its view. */
export function Plot({ name, title, view, zoomed }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const [hovered, setHovered] = useState<number | null>(null);
  const now = useValue(theme);
  const chart = useChart(host, name, setHovered);
  useLayoutEffect(() => chart.current?.show(view, now), [view, now]);
  useLayoutEffect(() => shown.set({ name, view }), [name, view]);
  useLayoutEffect(() => () => shown.set(null), []);
  const [said, setSaid] = useState("");
  const move = (event: KeyboardEvent): void => {
    const to = moved(event.key, hovered, indices(view.x, view.xRange));
    if (to === undefined) return;
    event.preventDefault(); // it means the readout, not the zoom
    chart.current?.point(to);
    setSaid(to === null ? "" : sentence(view, to));
  };
  return (
    <div class="plot">
      <Tools name={name} title={title} view={view} zoomed={zoomed} canvas={() => chart.current?.canvas ?? null} />
      <Readout view={view} index={hovered} />
      <div
        class={view.lines.length && view.x.length ? "chart" : "chart blank"}
        ref={host}
        tabIndex={0}
        role="img"
        aria-label={`${title}: ${view.lines.map(({ label }) => label).join(", ")}. Arrows read the values.`}
        onKeyDown={move}
        onBlur={() => setSaid("")}
      />
      <span class="unseen" role="status">
        {said}
      </span>
      {view.remarks.map((remark) => (
        <p key={remark} class="remark soft">
          {remark}
        </p>
      ))}
    </div>
  );
}

function useChart(host: { current: HTMLDivElement | null }, name: string, hover: (index: number | null) => void) {
  const chart = useRef<Chart | null>(null);
  const table = useRef(name);
  table.current = name;
  useLayoutEffect(() => {
    const made = new Chart(host.current!, { hover, zoom: (zoom) => choose(table.current, { zoom }) });
    chart.current = made;
    const observer = new ResizeObserver(() => made.resize());
    observer.observe(host.current!);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, []);
  return chart;
}

function Tools({ name, title, view, zoomed, canvas }: Props & { canvas: () => HTMLCanvasElement | null }) {
  const now = useValue(theme);
  const zoom = (factor: number) => () => choose(name, { zoom: { x: zoomedX(view, factor), y: null } });
  const drawn = (save: typeof saveSvg) => () => {
    const element = canvas();
    if (element) save(view, name, title, element, now);
  };
  const none = !view.lines.length || !view.x.length;
  return (
    <div class="tools">
      <div class="group" role="group" aria-label="Zoom">
        <button class="quiet" aria-label="Zoom in" title="Zoom in (+); or drag on the plot" disabled={none} onClick={zoom(0.5)}>
          <Icon name="plus" />
        </button>
        <button class="quiet" aria-label="Zoom out" title="Zoom out (-)" disabled={none} onClick={zoom(2)}>
          <Icon name="minus" />
        </button>
        <button class="quiet" aria-label="Show everything" title="Show everything (0, or double click)" disabled={!zoomed} onClick={() => choose(name, { zoom: WHOLE })}>
          <Icon name="whole" />
        </button>
      </div>
      <div class="row end" role="group" aria-label="Export plot">
        <button class="quiet" disabled={none} onClick={() => download(`${name}_plot.csv`, csvOf(view), "text/csv")}>
          <Icon name="down" /> CSV
        </button>
        <button class="quiet" disabled={none} onClick={drawn(saveSvg)}>
          <Icon name="down" /> SVG
        </button>
        <button class="quiet" disabled={none} onClick={drawn(savePng)}>
          <Icon name="down" /> PNG
        </button>
      </div>
    </div>
  );
}

// The legend; under the cursor it says the values there, otherwise the newest.
function Readout({ view, index }: { view: View; index: number | null }) {
  const now = useValue(theme);
  const at = index ?? view.x.length - 1;
  const found = useMemo(() => valuesAt(view, at), [view, at]);
  return (
    <ul class="readout" aria-label="Lines">
      {view.x.length > 0 && (
        <li>
          <span class="soft">{view.xLabel}</span> <b>{plain(view.x[at] ?? null)}</b>
        </li>
      )}
      {view.lines.map(({ label, number }, line) => (
        <li key={label}>
          <span class="swatch" aria-hidden="true" style={{ background: stroke(number, now).colour }} />
          <span class="soft">{label}</span> <b>{found[line]}</b>
        </li>
      ))}
    </ul>
  );
}

// Where a key takes the readout among the rows in sight; null: back to the newest, undefined: it is not such a key.
function moved(key: string, now: number | null, [first, last]: [number, number]): number | null | undefined {
  if (first >= last) return undefined;
  const at = now ?? last;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: first, End: last - 1 }[key];
  if (to !== undefined) return Math.min(last - 1, Math.max(first, to));
  return key === "Escape" && now !== null ? null : undefined;
}

function sentence(view: View, at: number): string {
  const values = valuesAt(view, at);
  return [`${view.xLabel} ${plain(view.x[at])}`, ...view.lines.map(({ label }, line) => `${label} ${values[line]}`)].join(", ");
}

function valuesAt(view: View, at: number): string[] {
  return view.lines.map(({ values, strange }) => plain(strange[at] ?? nearestValue(values, at), 5) || "–");
}

function nearestValue(values: (number | null | undefined)[], at: number): number | null {
  for (let far = 0; far < 64; far++) {
    for (const index of [at - far, at + far]) {
      const value = values[index];
      if (typeof value === "number") return value;
      if (value === null && far === 0) return null;
    }
  }
  return null;
}
