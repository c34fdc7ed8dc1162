// Light or dark, as chosen or as the reader's system has it; remembered.
import { Signal } from "./signal";

export type Choice = "auto" | "light" | "dark";
export type Theme = "light" | "dark";

const KEY = "torcheer.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** What the reader chose. */
export const choice = new Signal<Choice>(remembered());
/** What that means now; `data-theme` of the page says the same to CSS. */
export const theme = new Signal<Theme>(meant());

/** Choose, and remember it. */
export function choose(wanted: Choice): void {
  remember(KEY, wanted);
  choice.set(wanted);
  apply();
}

/** What comes after this choice: what the system does not have, what it has, and as it has it. */
export function next(now: Choice): Choice {
  const [same, other]: Theme[] = system.matches ? ["dark", "light"] : ["light", "dark"];
  return now === "auto" ? other : now === other ? same : "auto";
}

/** Go on to that. */
export function turn(): void {
  choose(next(choice.get()));
}

/** Follow the reader's system from now on. */
export function followSystem(): void {
  system.addEventListener("change", apply);
  apply();
}

/** Put something into the browser's memory; some browsers have none. */
export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // private windows may refuse: then it is forgotten with the page
  }
}

/** What the browser's memory holds, or nothing. */
export function recall(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function apply(): void {
  document.documentElement.dataset.theme = meant(); // first: who hears of it reads colours from CSS
  theme.set(meant());
}

function meant(): Theme {
  const wanted = choice.get();
  return wanted === "auto" ? (system.matches ? "dark" : "light") : wanted;
}

function remembered(): Choice {
  const found = recall(KEY);
  return found === "light" || found === "dark" ? found : "auto";
}
