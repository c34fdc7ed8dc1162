// Create HTML elements in one line. Text is always set as text, so a model's names can never become markup.
type Child = Node | string | null | undefined | false;
// Each handler knows the event that it asked for by name.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
type EventHandler = (event: any) => void;
type Attributes = Record<string, string | boolean | EventHandler>;

export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child): child is Node | string => Boolean(child)));
  return element;
}

/** 12,345 */
export function groupDigits(value: number): string {
  return value.toLocaleString("en");
}

export function plural(count: number, noun: string): string {
  return `${groupDigits(count)} ${noun}${count === 1 ? "" : noun.endsWith("x") ? "es" : "s"}`;
}
