// The tab's keys, as the page's help lists them.
import type { Key } from "../key_bindings";
import { Signal } from "../signal";
import { choose } from "./plot_choices";
import { WHOLE, zoomedX, type View } from "./plot_view";

/** The plot that the keys mean: the one on the screen. */
export const shown = new Signal<{ name: string; view: View } | null>(null);

/** Keys that mean something while the tab is shown. */
export function keysOfPlots(): Key[] {
  const to = (factor: number, by = 0) => () => zoom(factor, by);
  return [
    { key: "+", what: "Zoom in", tab: "plots", run: to(0.5) },
    { key: "-", shown: "−", what: "Zoom out", tab: "plots", run: to(2) },
    { key: "0", what: "Show everything", tab: "plots", run: () => shown.get() && choose(shown.get()!.name, { zoom: WHOLE }) },
    { key: "ArrowLeft", shown: "←", what: "Move left; on the plot itself, read the values before", tab: "plots", run: to(1, -0.25) },
    { key: "ArrowRight", shown: "→", what: "Move right; on the plot itself, read the values behind", tab: "plots", run: to(1, 0.25) },
  ];
}

function zoom(factor: number, by: number): void {
  const plot = shown.get();
  if (plot) choose(plot.name, { zoom: { x: zoomedX(plot.view, factor, by), y: null } });
}
