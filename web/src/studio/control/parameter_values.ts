// Format a parameter's value as text, and parse typed text into a value.
import type { Json, Parameter } from "../messages";
import { formatValue } from "../tables/value_format";

type ValueKind = Pick<Parameter, "kind" | "choices" | "minimum" | "maximum">;

/** The parsed value, or a sentence that says what is wrong with the text. */
export type ParseResult = { value: Json } | { wrong: string };

/** A parameter's name below its heading: of "optimizers.adam.lr" in "adam · optimizer" it is "lr". */
export function labelOf(name: string, group: string): string {
  const heading = `${group.split(" · ")[0]}.`;
  const at = `.${name}`.indexOf(`.${heading}`);
  return at < 0 ? name : name.slice(at + heading.length);
}

/** Format a value for its field. */
export function formatField(value: Json): string {
  return Array.isArray(value) ? value.map(formatField).join(", ") : formatValue(value, 12);
}

/** Format a value that cannot be edited, shorter: counts in groups of three digits (a seed is a name), 6 digits else. */
export function formatFixed(label: string, value: Json): string {
  if (typeof value !== "number") return formatField(value);
  const isCount = Number.isInteger(value) && !/seed$/i.test(label);
  return isCount ? value.toLocaleString("en") : formatValue(value);
}

/** The words of a name that has no spaces: Llama, For, Causal, LM; of a path its folders; a number is one. */
export function splitWords(text: string): string[] {
  return text.split(/(?<=[a-z\d])(?=[A-Z])|(?<=[_/]|(?<!\d)\.)|(?<=\.)(?!\d)/);
}

/** Parse the text typed for a parameter; a list stays a list. */
export function parseValue(parameter: ValueKind & { value: Json }, text: string): ParseResult {
  if (!Array.isArray(parameter.value)) return parseScalar(parameter, text.trim());
  const parts = text.replace(/^\s*\[|\]\s*$/g, "").split(",");
  const values: Json[] = [];
  for (const part of parts.filter((part) => part.trim())) {
    const result = parseScalar(parameter, part.trim());
    if ("wrong" in result) return result;
    values.push(result.value);
  }
  return { value: values };
}

function parseScalar(kind: ValueKind, text: string): ParseResult {
  switch (kind.kind) {
    case "number":
    case "integer":
      return parseNumber(kind, text);
    case "flag":
      return /^(true|false)$/i.test(text) ? { value: /^true$/i.test(text) } : { wrong: "true or false" };
    case "choice":
      return kind.choices.includes(text) ? { value: text } : { wrong: `one of ${kind.choices.join(", ")}` };
    default:
      return { value: text };
  }
}

function parseNumber({ kind, minimum, maximum }: ValueKind, text: string): ParseResult {
  const value = Number(text);
  if (text === "" || !Number.isFinite(value)) return { wrong: `“${text}” is not a number` };
  if (kind === "integer" && !Number.isInteger(value)) return { wrong: "a whole number, please" };
  if (minimum !== null && value < minimum) return { wrong: `at least ${formatValue(minimum)}` };
  if (maximum !== null && value > maximum) return { wrong: `at most ${formatValue(maximum)}` };
  return { value };
}
