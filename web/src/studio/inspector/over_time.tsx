// A layer's statistics and histograms over time, from the run's log.
import { useMemo, useState } from "preact/hooks";
import type { Hello, Layer, TensorHead } from "../messages";
import { HistogramPlot } from "../plots/histogram_plot";
import { buildHistogram } from "../plots/histogram_view";
import { useValue, type Store } from "../store";
import type { Table } from "../tables/table_rows";
import { formatNumber } from "../tables/value_format";
import { firstTable, loggedTables, seriesOf, statisticNames, type SeriesPoint } from "./logged_series";

const [WIDTH, HEIGHT, PAD] = [240, 72, 3]; // of the line's drawing
const HISTOGRAM = "histogram";

/** What to call so that there is something. */
const HINTS: Record<Hello["source"], string> = {
  file: "A file has no past.",
  comparison: "Two are compared as they are: neither has a past here.",
  pass: "A pass is one moment. tl.watch(model, to=…) around a training loop logs statistics of each layer.",
  live: "This run logs no statistics of this layer: tl.watch(model, to=…) beside tl.live does.",
  run: 'The log has no statistics of this layer: tl.watch(model, to=…), or "watch" in the config, keeps them.',
  recording: "A recording has the tables that its run had: none of this layer. tl.watch(model, to=…) logs them.",
  nothing: "",
};

interface OverTimeProps {
  store: Store;
  layer: Layer;
  head: TensorHead | null;
}

/** The section; without logged statistics it says how to get them. */
export function OverTime({ store, layer, head }: OverTimeProps) {
  const tables = loggedTables(useValue(store.tables), layer);
  const source = useValue(store.hello)?.source ?? "nothing";
  const [chosen, setChosen] = useState("");
  const [statistic, setStatistic] = useState("");
  const table =
    tables.find(({ head }) => head.name === chosen) ??
    firstTable(tables, layer, head?.variable ?? "", head?.parameter ?? "");
  return (
    <section class="tensor-time" aria-label="Statistics over time">
      <h3>
        Over time <small class="soft">from the log</small>
      </h3>
      {table ? (
        <TableOverTime {...{ tables, table, setChosen, statistic, setStatistic }} />
      ) : (
        <p class="soft">{HINTS[source]}</p>
      )}
    </section>
  );
}

interface TableOverTimeProps {
  tables: Table[];
  table: Table;
  setChosen: (name: string) => void;
  statistic: string;
  setStatistic: (name: string) => void;
}

function TableOverTime({ tables, table, setChosen, statistic, setStatistic }: TableOverTimeProps) {
  const names = statisticNames(table);
  const histogram = useMemo(() => buildHistogram(table), [table]);
  const shown = [...names, HISTOGRAM].includes(statistic) ? statistic : (names.find((name) => name === "mean") ?? names[0]); // prettier-ignore
  const { name, title } = table.head;
  return (
    <>
      <div class="tensor-row">
        <select aria-label="Logged value" value={name} onChange={({ currentTarget }) => setChosen(currentTarget.value)}>
          {tables.map(({ head }) => (
            <option key={head.name} value={head.name}>
              {head.title}
            </option>
          ))}
        </select>
        <select
          aria-label="Statistic"
          value={shown}
          onChange={({ currentTarget }) => setStatistic(currentTarget.value)}
        >
          {names.map((each) => (
            <option key={each}>{each}</option>
          ))}
          {histogram && <option>{HISTOGRAM}</option>}
        </select>
      </div>
      {shown === HISTOGRAM && histogram ? (
        <HistogramPlot name={name} title={title || name} view={histogram} />
      ) : (
        <SeriesLine points={seriesOf(table, shown)} name={shown} xName={table.head.x || "row"} />
      )}
    </>
  );
}

function SeriesLine({ points, name, xName }: { points: SeriesPoint[]; name: string; xName: string }) {
  const [place, setPlace] = useState<number | null>(null);
  if (!points.length) return <p class="soft">No finite {name} was logged yet.</p>;
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const [xLow, xHigh, yLow, yHigh] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const xAt = (x: number): number => PAD + ((WIDTH - 2 * PAD) * (x - xLow)) / (xHigh - xLow || 1);
  const yAt = (y: number): number =>
    yHigh > yLow ? HEIGHT - PAD - ((HEIGHT - 2 * PAD) * (y - yLow)) / (yHigh - yLow) : HEIGHT / 2;
  const last = points.length - 1;
  const index = Math.min(last, place ?? last);
  const text = `${xName} ${points[index].x}: ${formatNumber(points[index].y)}`;
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    setPlace(Math.max(0, Math.min(last, index + step)));
  };
  return (
    <div class="tensor-series">
      <div class="numbers soft">
        <span>{formatNumber(yHigh, 3)}</span>
        <span>{yHigh > yLow && formatNumber(yLow, 3)}</span>
      </div>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        tabIndex={0}
        role="slider"
        aria-label={`${name} over time`}
        aria-valuemin={0}
        aria-valuemax={last}
        aria-valuenow={index}
        aria-valuetext={text}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const x = ((event.clientX - box.left) / box.width) * WIDTH;
          setPlace(xs.reduce((best, each, n) => (Math.abs(xAt(each) - x) < Math.abs(xAt(xs[best]) - x) ? n : best), 0));
        }}
        onPointerLeave={() => setPlace(null)}
        onKeyDown={press}
      >
        <polyline points={points.map(({ x, y }) => `${xAt(x).toFixed(2)},${yAt(y).toFixed(2)}`).join(" ")} />
        <circle cx={xAt(points[index].x)} cy={yAt(points[index].y)} r={2.5} />
      </svg>
      <output>{text}</output>
    </div>
  );
}
