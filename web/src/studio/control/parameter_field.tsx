// One line of the parameter form.
import { useEffect, useId, useLayoutEffect, useState } from "preact/hooks";

import type { Json, Parameter } from "../messages";
import { parse, shownValue } from "./parameter_values";

const ANSWER_MS = 4000; // then the run has not taken it, and the field says what the run says

interface Props {
  parameter: Parameter;
  locked: boolean; // somebody else has control
  change: (value: Json) => void;
}

/** A parameter: its name, its value, and a way to change it where it may be changed. */
export function Field({ parameter, locked, change }: Props) {
  const { name, kind, editable, doc, group } = parameter;
  const [pending, change_] = usePending(parameter.value, change);
  const [heading] = group.split(" · "); // "digits · datasets"
  const label = heading && name.startsWith(`${heading}.`) ? name.slice(heading.length + 1) : name;
  const id = useId(); // a name may hold spaces, or anything else
  const props = { parameter, id, disabled: locked, pending, change: change_ };
  const simple = !Array.isArray(parameter.value);
  return (
    <div class={`field${pending === undefined ? "" : " pending"}`} title={doc ? `${name}: ${doc}` : name}>
      <label for={id}>{label}</label>
      {!editable ? (
        <output id={id} class="value">
          {shownValue(parameter.value) || "–"}
        </output>
      ) : kind === "flag" && simple ? (
        <Flag {...props} />
      ) : kind === "choice" && simple ? (
        <Choice {...props} />
      ) : (
        <Text {...props} />
      )}
    </div>
  );
}

// What was sent stands in the field until the run answers with its own value.
function usePending(value: Json, send: (value: Json) => void): [Json | undefined, (value: Json) => void] {
  const [pending, setPending] = useState<Json | undefined>(undefined);
  const known = JSON.stringify(value);
  useLayoutEffect(() => setPending(undefined), [known]);
  useEffect(() => {
    if (pending === undefined) return;
    const timer = window.setTimeout(() => setPending(undefined), ANSWER_MS);
    return () => window.clearTimeout(timer);
  }, [pending]);
  const change = (wanted: Json): void => {
    if (JSON.stringify(wanted) === known) return;
    setPending(wanted);
    send(wanted);
  };
  return [pending, change];
}

interface InputProps {
  parameter: Parameter;
  id: string;
  disabled: boolean;
  pending: Json | undefined;
  change: (value: Json) => void;
}

function Flag({ parameter, id, disabled, pending, change }: InputProps) {
  const checked = Boolean(pending ?? parameter.value);
  return (
    <input
      id={id}
      type="checkbox"
      checked={checked}
      disabled={disabled}
      onChange={({ currentTarget }) => change(currentTarget.checked)}
    />
  );
}

function Choice({ parameter, id, disabled, pending, change }: InputProps) {
  const now = String(pending ?? parameter.value);
  const choices = parameter.choices.includes(now) ? parameter.choices : [now, ...parameter.choices];
  return (
    <select id={id} value={now} disabled={disabled} onChange={({ currentTarget }) => change(currentTarget.value)}>
      {choices.map((choice) => (
        <option key={choice} value={choice}>
          {choice}
        </option>
      ))}
    </select>
  );
}

function Text({ parameter, id, disabled, pending, change }: InputProps) {
  const [draft, setDraft] = useState<string | null>(null); // null: nobody is typing
  const parsed = draft === null ? null : parse(parameter, draft);
  const wrong = parsed && "wrong" in parsed ? parsed.wrong : "";
  const commit = (): void => {
    if (parsed && "value" in parsed) change(parsed.value);
    if (!wrong) setDraft(null);
  };
  const keyed = (event: KeyboardEvent): void => {
    if (event.key === "Enter") commit();
    if (event.key === "Escape") setDraft(null);
  };
  return (
    <span class="entry">
      <input
        id={id}
        class="number"
        inputMode={parameter.kind === "text" ? "text" : "decimal"}
        value={draft ?? shownValue(pending ?? parameter.value)}
        disabled={disabled}
        aria-invalid={!!wrong}
        aria-describedby={wrong ? `${id}-wrong` : undefined}
        spellcheck={false}
        autocomplete="off"
        onInput={({ currentTarget }) => setDraft(currentTarget.value)}
        onKeyDown={keyed}
        onBlur={() => (wrong ? setDraft(null) : commit())}
      />
      {wrong && (
        <span id={`${id}-wrong`} class="wrong" role="alert">
          {wrong}
        </span>
      )}
    </span>
  );
}
