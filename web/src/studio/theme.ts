// The theme: light, dark or as the system prefers; stored in the browser.
import { loadItem, saveItem } from "./local_storage";
import { Signal } from "./signal";

export type ThemeChoice = "auto" | "light" | "dark";
export type Theme = "light" | "dark";

const THEME_KEY = "torcheer.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** The user's choice. */
export const themeChoice = new Signal<ThemeChoice>(loadChoice());
/** The theme in effect; CSS reads it from the page's `data-theme`. */
export const theme = new Signal<Theme>(resolveTheme());

/** Set and store the choice. */
export function setThemeChoice(newChoice: ThemeChoice): void {
  saveItem(THEME_KEY, newChoice);
  themeChoice.set(newChoice);
  applyTheme();
}

/** The next choice: first the theme the system does not have, then the one it has, then automatic. */
export function nextChoice(current: ThemeChoice): ThemeChoice {
  const [same, other]: Theme[] = systemDark.matches ? ["dark", "light"] : ["light", "dark"];
  return current === "auto" ? other : current === other ? same : "auto";
}

/** Switch to the next choice. */
export function cycleTheme(): void {
  setThemeChoice(nextChoice(themeChoice.get()));
}

/** Apply the theme, and follow changes of the system's. */
export function followSystem(): void {
  systemDark.addEventListener("change", applyTheme);
  applyTheme();
}

function applyTheme(): void {
  document.documentElement.dataset.theme = resolveTheme(); // first: subscribers read colours from CSS
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
