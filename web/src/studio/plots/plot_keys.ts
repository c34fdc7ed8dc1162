// Key bindings of the Plots tab, as listed in the help.
import type { KeyBinding } from "../key_bindings";
import { Signal } from "../signal";
import { updateChoices } from "./plot_choices";
import { FULL_ZOOM, zoomX, type PlotView } from "./plot_view";

/** The plot on the screen, which the keys act on. */
export const shownPlot = new Signal<{ name: string; view: PlotView } | null>(null);

/** The bindings that are active on the Plots tab. */
export function plotKeyBindings(): KeyBinding[] {
  const zoomBy =
    (factor: number, shift = 0) =>
    () =>
      zoomPlot(factor, shift);
  return [
    { key: "+", description: "Zoom in", tab: "plots", run: zoomBy(0.5) },
    { key: "-", label: "−", description: "Zoom out", tab: "plots", run: zoomBy(2) },
    {
      key: "0",
      description: "Show everything",
      tab: "plots",
      run: () => shownPlot.get() && updateChoices(shownPlot.get()!.name, { zoom: FULL_ZOOM }),
    },
    {
      key: "ArrowLeft",
      label: "←",
      description: "Move left; on the plot itself, read the values before",
      tab: "plots",
      run: zoomBy(1, -0.25),
    },
    {
      key: "ArrowRight",
      label: "→",
      description: "Move right; on the plot itself, read the values behind",
      tab: "plots",
      run: zoomBy(1, 0.25),
    },
  ];
}

function zoomPlot(factor: number, shift: number): void {
  const plot = shownPlot.get();
  if (plot) updateChoices(plot.name, { zoom: { x: zoomX(plot.view, factor, shift), y: null } });
}
