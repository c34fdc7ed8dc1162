// Light or dark theme: as chosen, or as the system prefers.
import type { App, ThemeName } from "./app";
import type { Payload, Theme } from "./payload";

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

export function isDark(theme: ThemeName): boolean {
  return theme === "dark" || (theme === "auto" && darkQuery.matches);
}

export function watchTheme(app: App): void {
  darkQuery.addEventListener("change", () => setTheme(app, app.theme));
  setTheme(app, app.theme);
}

export function setTheme(app: App, theme: ThemeName): void {
  app.theme = theme;
  app.themed.classList.toggle("dark", isDark(theme));
  if (app.boxes.length) app.emit("theme");
}

/** Python's theme colours as CSS variables below `root`, "" for none, plus the rules that make the drawing dark. */
export function themeCss({ colours }: Payload, root = ":root"): string {
  const variables = (theme: Theme): string =>
    Object.entries(theme)
      .map(([name, value]) => `--${name.replace("_", "-")}:${value};`)
      .join("");
  const themes = root ? `${root}{${variables(colours.light)}}.dark{${variables(colours.dark)}}` : "";
  return themes + colours.dark_rules;
}
