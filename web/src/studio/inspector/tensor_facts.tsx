// Statistics of a tensor's numbers now: moments, sparsity, dead units, histogram.
import { useState } from "preact/hooks";
import type { TensorHead, TensorStatistics } from "../messages";
import { formatNumber } from "../tables/value_format";

const [WIDTH, HEIGHT] = [240, 56]; // of the histogram's drawing
const MAX_LISTED = 12; // dead units that are named

interface TensorFactsProps {
  head: TensorHead;
  facts: TensorStatistics;
  onUnit: (axis: number, unit: number) => void;
}

/** The statistics of all numbers that are kept, whatever the sliders say. */
export function TensorFacts({ head, facts, onUnit }: TensorFactsProps) {
  const { count, zeros, nans, plus_infs: plus, minus_infs: minus } = facts;
  const isFinite = count > nans + plus + minus;
  return (
    <section class="tensor-facts" aria-label="Statistics">
      <h3>
        Statistics <small class="soft">of all {count.toLocaleString("en")} numbers</small>
      </h3>
      {isFinite && (
        <dl>
          {facts.measured.map(([name, number]) => (
            <Fact key={name} name={name} value={formatNumber(number, 5)} />
          ))}
          <Fact name="zeros" value={formatShare(zeros, count)} />
        </dl>
      )}
      {
        nans + plus + minus > 0 && (
        <p class="strange">
          {[[nans, "NaN"], [plus, "∞"], [minus, "−∞"]]
            .filter(([number]) => number)
            .map(([number, name]) => `${number.toLocaleString("en")} ${name}`)
            .join(", ")}
        </p>
      ) /* prettier-ignore */
      }
      <DeadUnits {...{ head, facts, onUnit }} />
      {facts.counts.length > 1 && <Histogram facts={facts} />}
    </section>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** A share as percent; what is neither none nor all never looks so. */
export function formatShare(part: number, whole: number): string {
  const percent = (100 * part) / (whole || 1);
  if (part && percent < 0.1) return "< 0.1%";
  if (part < whole && percent > 99.9) return "> 99.9%";
  return `${formatNumber(percent, 3)}%`;
}

function DeadUnits({ head, facts, onUnit }: TensorFactsProps) {
  const { dead, units, unit_axis: axis, dead_units: numbers } = facts;
  if (axis < 0 || units < 2) return null;
  const name = head.axes[axis] || "unit";
  if (!dead)
    return (
      <p class="soft">
        No {name} is zero throughout ({units}).
      </p>
    );
  return (
    <div class="tensor-dead">
      <p>
        <b>
          {dead} of {units}
        </b>{" "}
        {name}s are zero throughout{dead < units ? ":" : "."}
      </p>
      {dead < units && (
        <p>
          {numbers.slice(0, MAX_LISTED).map((unit) => (
            <button key={unit} class="quiet" aria-label={`Show ${name} ${unit}`} onClick={() => onUnit(axis, unit)}>
              {unit}
            </button>
          ))}
          {dead > MAX_LISTED && <span class="soft"> and {dead - MAX_LISTED} more</span>}
        </p>
      )}
    </div>
  );
}

function Histogram({ facts: { counts, edges, count } }: { facts: TensorStatistics }) {
  const [bin, setBin] = useState<number | null>(null);
  const largest = Math.max(...counts);
  const width = WIDTH / counts.length;
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -counts.length, End: counts.length }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    setBin(Math.max(0, Math.min(counts.length - 1, (bin ?? -1) + step)));
  };
  const text =
    bin === null
      ? `${formatNumber(edges[0], 3)} … ${formatNumber(edges[edges.length - 1], 3)}`
      : `${formatNumber(edges[bin], 4)} to ${formatNumber(edges[bin + 1], 4)}: ${counts[bin].toLocaleString("en")} (${formatShare(counts[bin], count)})`;
  return (
    <div class="tensor-histogram">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        tabindex={0}
        role="slider"
        aria-label="Histogram"
        aria-valuemin={0}
        aria-valuemax={counts.length - 1}
        aria-valuenow={bin ?? 0}
        aria-valuetext={text}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const place = Math.floor(((event.clientX - box.left) / box.width) * counts.length);
          setBin(Math.max(0, Math.min(counts.length - 1, place)));
        }}
        onPointerLeave={() => setBin(null)}
        onBlur={() => setBin(null)}
        onKeyDown={press}
      >
        {counts.map((number, n) => {
          const height = number ? Math.max(1, (number / largest) * (HEIGHT - 2)) : 0;
          return (
            <rect
              key={n}
              class={n === bin ? "chosen" : ""}
              x={n * width + 0.25}
              y={HEIGHT - height}
              width={width - 0.5}
              height={height}
            />
          );
        })}
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.25} y2={HEIGHT - 0.25} />
      </svg>
      <output class="soft">{text}</output>
    </div>
  );
}
