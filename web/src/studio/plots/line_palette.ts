// Line colours that are distinguishable with any colour vision; dashes if there are more lines than colours.
import type { Theme } from "../theme";

const COLOURS: Record<Theme, string[]> = {
  light: ["#0072b2", "#d55e00", "#00855f", "#b14d86", "#8a6d00", "#5d4bb5", "#2b8fb8", "#5c5c5c"],
  dark: ["#56b4e9", "#ff9248", "#2fcf9f", "#ec9fcb", "#e8c547", "#b3a1ff", "#8fd8f0", "#bdbdbd"],
};
const DASHES: number[][] = [[], [6, 4], [2, 3], [9, 3, 2, 3]];

/** The stroke of the line with this number. */
export function lineStroke(number: number, theme: Theme): { colour: string; dash: number[] } {
  const colours = COLOURS[theme];
  return {
    colour: colours[number % colours.length],
    dash: DASHES[Math.floor(number / colours.length) % DASHES.length],
  };
}
