// Where the axes begin and end, typed; an empty box is automatic.
import { useState } from "preact/hooks";

import { plain } from "../tables/value_format";
import { choose, type PlotChoices } from "./plot_choices";
import type { View } from "./plot_view";

interface Axis {
  key: string; // as `Limits` has it
  label: string;
  range: [number, number]; // as it is now
}

/** Two boxes for each axis. */
export function AxisLimits({ name, choices, view }: { name: string; choices: PlotChoices; view: View }) {
  const axes: Axis[] = [{ key: "x", label: "x", range: view.xRange }];
  for (const { columns, range } of view.scales) {
    if (choices.apart) axes.push({ key: `y ${columns[0]}`, label: columns[0], range });
    else axes.push({ key: "y", label: "y", range });
  }
  const set = (key: string, end: 0 | 1) => (value: number | null) => {
    const limit: [number | null, number | null] = [...(choices.limits.get(key) ?? [null, null])];
    limit[end] = value;
    choose(name, { limits: new Map(choices.limits).set(key, limit), zoom: { x: null, y: null } });
  };
  return (
    <fieldset>
      <legend>Axis limits</legend>
      {axes.map(({ key, label, range }) => {
        const [least, most] = choices.limits.get(key) ?? [null, null];
        const crossed = least !== null && most !== null && least >= most;
        return (
          <div key={key} class="limits" role="group" aria-label={`Limits of ${label}`}>
            <span class="name" title={label}>{label}</span>
            <End label={`Least ${label}`} value={least} now={range[0]} wrong={crossed} set={set(key, 0)} />
            <End label={`Largest ${label}`} value={most} now={range[1]} wrong={crossed} set={set(key, 1)} />
          </div>
        );
      })}
    </fieldset>
  );
}

interface EndProps {
  label: string;
  value: number | null;
  now: number;
  wrong: boolean;
  set: (value: number | null) => void;
}

function End({ label, value, now, wrong, set }: EndProps) {
  const [draft, setDraft] = useState<string | null>(null); // null: nobody is typing
  const number = Number(draft);
  const unreadable = draft !== null && !Number.isFinite(number);
  const commit = (): void => {
    if (draft !== null && !unreadable) set(draft.trim() ? number : null);
    setDraft(null);
  };
  return (
    <input
      class="number"
      inputMode="decimal"
      aria-label={label}
      title={`${label}; empty: automatic`}
      placeholder={plain(now, 3)}
      value={draft ?? plain(value, 12)}
      aria-invalid={wrong || unreadable}
      autocomplete="off"
      onInput={({ currentTarget }) => setDraft(currentTarget.value)}
      onBlur={commit}
      onKeyDown={({ key }) => (key === "Enter" ? commit() : key === "Escape" && setDraft(null))}
    />
  );
}
