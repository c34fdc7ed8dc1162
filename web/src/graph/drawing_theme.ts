// Light or dark theme: as chosen, or as the system prefers.
import type { App, ThemeName } from "./app";
import type { Payload, Theme } from "./payload";

const darkQuery = matchMedia("(prefers-color-scheme: dark)");

export function isDark(theme: ThemeName): boolean {
  return theme === "dark" || (theme === "auto" && darkQuery.matches);
}

/** The theme named by the URL fragment: an embedding page such as the studio sets its own theme this way. */
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

/** Python's theme colours as CSS variables, plus the rules that make the drawing dark. */
export function themeCss({ colours }: Payload): string {
  const variables = (theme: Theme): string =>
    Object.entries(theme)
      .map(([name, value]) => `--${name.replace("_", "-")}:${value};`)
      .join("");
  return `:root{${variables(colours.light)}}.dark{${variables(colours.dark)}}${colours.dark_rules}`;
}
