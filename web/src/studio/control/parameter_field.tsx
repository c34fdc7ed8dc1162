// One field of the parameter form.
import { useEffect, useId, useLayoutEffect, useState } from "preact/hooks";

import type { Json, Parameter } from "../messages";
import { parseValue, formatField, formatFixed, labelOf, splitWords } from "./parameter_values";

const PENDING_TIMEOUT_MS = 4000; // after this the run has not accepted the value, and the field shows the run's value again

interface FieldProps {
  parameter: Parameter;
  locked: boolean; // another page has control
  change: (value: Json) => void;
}

/** A parameter: its name, its value, and an input if it is editable. */
export function ParameterField({ parameter, locked, change }: FieldProps) {
  const { name, kind, editable, doc, group } = parameter;
  const [pending, changePending] = usePending(parameter.value, change);
  const label = labelOf(name, group);
  const id = useId(); // a name may contain spaces or anything else
  const props = { parameter, id, disabled: locked, pending, change: changePending };
  const isScalar = !Array.isArray(parameter.value);
  return (
    <div class={`field${pending === undefined ? "" : " pending"}`} title={doc ? `${name}: ${doc}` : name}>
      <label for={id}>{label}</label>
      {!editable ? (
        <output id={id} class="value">
          {breakable(formatFixed(label, parameter.value) || "–")}
        </output>
      ) : kind === "flag" && isScalar ? (
        <FlagInput {...props} />
      ) : kind === "choice" && isScalar ? (
        <ChoiceInput {...props} />
      ) : (
        <TextInput {...props} />
      )}
    </div>
  );
}

// Text that may be broken where a word begins: LlamaForCausal|LM, runs/|first.
function breakable(text: string) {
  return splitWords(text).flatMap((word, n) => (n ? [<wbr key={n} />, word] : [word]));
}

// The value sent stays in the field until the run answers with its own.
function usePending(value: Json, send: (value: Json) => void): [Json | undefined, (value: Json) => void] {
  const [pending, setPending] = useState<Json | undefined>(undefined);
  const serialized = JSON.stringify(value);
  useLayoutEffect(() => setPending(undefined), [serialized]);
  useEffect(() => {
    if (pending === undefined) return;
    const timer = window.setTimeout(() => setPending(undefined), PENDING_TIMEOUT_MS);
    return () => window.clearTimeout(timer);
  }, [pending]);
  const change = (newValue: Json): void => {
    if (JSON.stringify(newValue) === serialized) return;
    setPending(newValue);
    send(newValue);
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

function FlagInput({ parameter, id, disabled, pending, change }: InputProps) {
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

function ChoiceInput({ parameter, id, disabled, pending, change }: InputProps) {
  const current = String(pending ?? parameter.value);
  const choices = parameter.choices.includes(current) ? parameter.choices : [current, ...parameter.choices];
  return (
    <select id={id} value={current} disabled={disabled} onChange={({ currentTarget }) => change(currentTarget.value)}>
      {choices.map((choice) => (
        <option key={choice} value={choice}>
          {choice}
        </option>
      ))}
    </select>
  );
}

function TextInput({ parameter, id, disabled, pending, change }: InputProps) {
  const [draft, setDraft] = useState<string | null>(null); // null: not being edited
  const parsed = draft === null ? null : parseValue(parameter, draft);
  const problem = parsed && "wrong" in parsed ? parsed.wrong : "";
  const commit = (): void => {
    if (parsed && "value" in parsed) change(parsed.value);
    if (!problem) setDraft(null);
  };
  const handleKey = (event: KeyboardEvent): void => {
    if (event.key === "Enter") commit();
    if (event.key === "Escape") setDraft(null);
  };
  return (
    <span class="entry">
      <input
        id={id}
        class="number"
        inputMode={parameter.kind === "text" ? "text" : "decimal"}
        value={draft ?? formatField(pending ?? parameter.value)}
        disabled={disabled}
        aria-invalid={!!problem}
        aria-describedby={problem ? `${id}-wrong` : undefined}
        spellcheck={false}
        autocomplete="off"
        onInput={({ currentTarget }) => setDraft(currentTarget.value)}
        onKeyDown={handleKey}
        onBlur={() => (problem ? setDraft(null) : commit())}
      />
      {problem && (
        <span id={`${id}-wrong`} class="wrong" role="alert">
          {problem}
        </span>
      )}
    </span>
  );
}
