// Light or dark, as chosen or as the reader's system has it.
import type { App, ThemeName } from "./app";
import type { Payload, Theme } from "./payload";

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

export function isDark(theme: ThemeName): boolean {
  return theme === "dark" || (theme === "auto" && darkQuery.matches);
}

/** The theme that the fragment of our address names: so a page around this one, such as the studio, says its own. */
export function themeFromHash(): ThemeName | undefined {
  return (["light", "dark"] as const).find((name) => location.hash === `#${name}`);
}

export function watchTheme(app: App): void {
  darkQuery.addEventListener("change", () => setTheme(app, app.theme));
  addEventListener("hashchange", () => setTheme(app, themeFromHash() ?? app.theme));
  setTheme(app, app.theme);
}

export function setTheme(app: App, theme: ThemeName): void {
  app.theme = theme;
  document.documentElement.classList.toggle("dark", isDark(theme));
  if (app.boxes.length) app.emit("theme");
}

/** The colours of Python's themes as CSS variables, and what turns the drawing dark. */
export function themeCss({ colours }: Payload): string {
  const variables = (theme: Theme): string =>
    Object.entries(theme)
      .map(([name, value]) => `--${name.replace("_", "-")}:${value};`)
      .join("");
  return `:root{${variables(colours.light)}}.dark{${variables(colours.dark)}}${colours.dark_rules}`;
}
