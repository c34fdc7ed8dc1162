// Light or dark, as chosen or as the reader's system has it; remembered.
import { Signal } from "./signal";

export type ThemeChoice = "auto" | "light" | "dark";
export type Theme = "light" | "dark";

const THEME_KEY = "torcheer.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** What the reader chose. */
export const themeChoice = new Signal<ThemeChoice>(loadChoice());
/** What that means now; `data-theme` of the page says the same to CSS. */
export const theme = new Signal<Theme>(resolveTheme());

/** Choose, and remember it. */
export function setThemeChoice(newChoice: ThemeChoice): void {
  saveItem(THEME_KEY, newChoice);
  themeChoice.set(newChoice);
  applyTheme();
}

/** What comes after this choice: what the system does not have, what it has, and as it has it. */
export function nextChoice(current: ThemeChoice): ThemeChoice {
  const [same, other]: Theme[] = systemDark.matches ? ["dark", "light"] : ["light", "dark"];
  return current === "auto" ? other : current === other ? same : "auto";
}

/** Go on to that. */
export function cycleTheme(): void {
  setThemeChoice(nextChoice(themeChoice.get()));
}

/** Follow the reader's system from now on. */
export function followSystem(): void {
  systemDark.addEventListener("change", applyTheme);
  applyTheme();
}

/** Put something into the browser's memory; some browsers have none. */
export function saveItem(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // private windows may refuse: then it is forgotten with the page
  }
}

/** What the browser's memory holds, or nothing. */
export function loadItem(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function applyTheme(): void {
  document.documentElement.dataset.theme = resolveTheme(); // first: who hears of it reads colours from CSS
  theme.set(resolveTheme());
}

function resolveTheme(): Theme {
  const current = themeChoice.get();
  return current === "auto" ? (systemDark.matches ? "dark" : "light") : current;
}

function loadChoice(): ThemeChoice {
  const stored = loadItem(THEME_KEY);
  return stored === "light" || stored === "dark" ? stored : "auto";
}
