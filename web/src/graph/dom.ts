// HTML elements in one line. Text is always text: nothing a model is named can become markup.
type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | boolean | ((event: any) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child): child is Node | string => Boolean(child)));
  return made;
}

/** 12,345 */
export function grouped(value: number): string {
  return value.toLocaleString("en");
}

export function plural(count: number, noun: string): string {
  return `${grouped(count)} ${noun}${count === 1 ? "" : noun.endsWith("x") ? "es" : "s"}`;
}
