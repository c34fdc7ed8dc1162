// The plot itself: the chart, its readout, and the buttons above it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { addKeys } from "../keys";
import { useValue } from "../signal";
import { Icon } from "../shell/icons";
import { plain } from "../tables/text";
import { theme } from "../theme";
import { Chart } from "./chart";
import { choose } from "./choices";
import { csvOf, savePng, saveSvg } from "./exports";
import { download } from "../tables/csv";
import { stroke } from "./palette";
import { WHOLE, zoomedX, type View } from "./view";

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
  useEffect(() => chart.current?.show(view, now), [view, now]);
  useZoomKeys(name, view);
  return (
    <div class="plot">
      <Tools name={name} title={title} view={view} zoomed={zoomed} canvas={() => chart.current?.canvas ?? null} />
      <Readout view={view} index={hovered} />
      <div class={view.lines.length && view.x.length ? "chart" : "chart blank"} ref={host} role="img" aria-label={`${title}: ${view.lines.map(({ label }) => label).join(", ")}`} />
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
  useEffect(() => {
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

function useZoomKeys(name: string, view: View): void {
  const latest = useRef(view);
  latest.current = view;
  useEffect(() => {
    const to = (factor: number, by = 0) => () => choose(name, { zoom: { x: zoomedX(latest.current, factor, by), y: null } });
    return addKeys([
      { key: "+", what: "Zoom in", tab: "plots", run: to(0.5) },
      { key: "-", what: "Zoom out", tab: "plots", run: to(2) },
      { key: "0", what: "Show everything", tab: "plots", run: () => choose(name, { zoom: WHOLE }) },
      { key: "ArrowLeft", shown: "←", what: "Move left", tab: "plots", run: to(1, -0.25) },
      { key: "ArrowRight", shown: "→", what: "Move right", tab: "plots", run: to(1, 0.25) },
    ]);
  }, [name]);
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
  const found = useMemo(() => view.lines.map(({ values }) => nearestValue(values, at)), [view, at]);
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
          <span class="soft">{label}</span> <b>{plain(found[line], 5) || "–"}</b>
        </li>
      ))}
    </ul>
  );
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
