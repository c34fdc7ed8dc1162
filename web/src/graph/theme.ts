// Light or dark, as chosen or as the reader's system has it.
import type { App, ThemeName } from "./app";
import type { Data, Theme } from "./data";

const dark = matchMedia("(prefers-color-scheme: dark)");

export function isDark(theme: ThemeName): boolean {
  return theme === "dark" || (theme === "auto" && dark.matches);
}

export function followTheme(app: App): void {
  dark.addEventListener("change", () => setTheme(app, app.theme));
  setTheme(app, app.theme);
}

export function setTheme(app: App, theme: ThemeName): void {
  app.theme = theme;
  document.documentElement.classList.toggle("dark", isDark(theme));
  if (app.boxes.length) app.tell("theme");
}

/** The colours of Python's themes as CSS variables, and what turns the drawing dark. */
export function themeRules({ colours }: Data): string {
  const variables = (theme: Theme): string =>
    Object.entries(theme)
      .map(([name, value]) => `--${name.replace("_", "-")}:${value};`)
      .join("");
  return `:root{${variables(colours.light)}}.dark{${variables(colours.dark)}}${colours.dark_rules}`;
}
