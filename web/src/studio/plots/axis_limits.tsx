// Inputs for axis limits; an empty input means automatic.
import { useState } from "preact/hooks";

import { formatValue } from "../tables/value_format";
import { updateChoices, type PlotChoices } from "./plot_choices";
import type { PlotView } from "./plot_view";

interface LimitedAxis {
  key: string; // key in `Limits`
  label: string;
  range: [number, number]; // the current range
}

/** Two inputs for each axis. */
export function AxisLimits({ name, choices, view }: { name: string; choices: PlotChoices; view: PlotView }) {
  const axes: LimitedAxis[] = [{ key: "x", label: "x", range: view.xRange }];
  for (const { columns, range } of view.scales) {
    if (choices.separateAxes) axes.push({ key: `y ${columns[0]}`, label: columns[0], range });
    else axes.push({ key: "y", label: "y", range });
  }
  const set = (key: string, end: 0 | 1) => (value: number | null) => {
    const limit: [number | null, number | null] = [...(choices.limits.get(key) ?? [null, null])];
    limit[end] = value;
    updateChoices(name, { limits: new Map(choices.limits).set(key, limit), zoom: { x: null, y: null } });
  };
  return (
    <fieldset>
      <legend>Axis limits</legend>
      {axes.map(({ key, label, range }) => {
        const [minimum, maximum] = choices.limits.get(key) ?? [null, null];
        const isCrossed = minimum !== null && maximum !== null && minimum >= maximum;
        return (
          <div key={key} class="limits" role="group" aria-label={`Limits of ${label}`}>
            <span class="name" title={label}>
              {label}
            </span>
            <LimitInput
              label={`Least ${label}`}
              value={minimum}
              current={range[0]}
              isWrong={isCrossed}
              set={set(key, 0)}
            />
            <LimitInput
              label={`Largest ${label}`}
              value={maximum}
              current={range[1]}
              isWrong={isCrossed}
              set={set(key, 1)}
            />
          </div>
        );
      })}
    </fieldset>
  );
}

interface LimitInputProps {
  label: string;
  value: number | null;
  current: number;
  isWrong: boolean;
  set: (value: number | null) => void;
}

function LimitInput({ label, value, current, isWrong, set }: LimitInputProps) {
  const [draft, setDraft] = useState<string | null>(null); // null: not being edited
  const number = Number(draft);
  const isInvalid = draft !== null && !Number.isFinite(number);
  const commit = (): void => {
    if (draft !== null && !isInvalid) set(draft.trim() ? number : null);
    setDraft(null);
  };
  return (
    <input
      class="number"
      inputMode="decimal"
      aria-label={label}
      title={`${label}; empty: automatic`}
      placeholder={formatValue(current, 3)}
      value={draft ?? formatValue(value, 12)}
      aria-invalid={isWrong || isInvalid}
      autocomplete="off"
      onInput={({ currentTarget }) => setDraft(currentTarget.value)}
      onBlur={commit}
      onKeyDown={({ key }) => (key === "Enter" ? commit() : key === "Escape" && setDraft(null))}
    />
  );
}
