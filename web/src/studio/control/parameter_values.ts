// A parameter's value as text, and text as a value that may be sent.
import type { Json, Parameter } from "../messages";
import { plain } from "../tables/value_format";

type Kind = Pick<Parameter, "kind" | "choices" | "minimum" | "maximum">;

/** What was typed as a value, or a sentence that says what is wrong with it. */
export type Parsed = { value: Json } | { wrong: string };

/** How a value stands in its field. */
export function shownValue(value: Json): string {
  return Array.isArray(value) ? value.map(shownValue).join(", ") : plain(value, 12);
}

/** Read what was typed for a parameter; a list stays one. */
export function parse(parameter: Kind & { value: Json }, text: string): Parsed {
  if (!Array.isArray(parameter.value)) return parseOne(parameter, text.trim());
  const parts = text.replace(/^\s*\[|\]\s*$/g, "").split(",");
  const values: Json[] = [];
  for (const part of parts.filter((part) => part.trim())) {
    const one = parseOne(parameter, part.trim());
    if ("wrong" in one) return one;
    values.push(one.value);
  }
  return { value: values };
}

function parseOne(kind: Kind, text: string): Parsed {
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

function parseNumber({ kind, minimum, maximum }: Kind, text: string): Parsed {
  const value = Number(text);
  if (text === "" || !Number.isFinite(value)) return { wrong: `“${text}” is not a number` };
  if (kind === "integer" && !Number.isInteger(value)) return { wrong: "a whole number, please" };
  if (minimum !== null && value < minimum) return { wrong: `at least ${plain(minimum)}` };
  if (maximum !== null && value > maximum) return { wrong: `at most ${plain(maximum)}` };
  return { value };
}
