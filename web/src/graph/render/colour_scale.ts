// Colour boxes by a number instead of by kind, as src/torcheer/drawing/looks/colour_scale.py does.
import type { PlacedBox } from "../layout/placement";
import type { Paint } from "./painter";
import { joinAmounts, QuantityScale, type Amount } from "./quantity_scale";

const UNPAINTED_LOOKS = ["input", "output", "parameter", "buffer", "stop"]; // looks that keep their own colours

export class ColourScale extends QuantityScale {
  private sums = [0];
  private counts = [0];
  private nans = [0]; // counted apart: one of them would spoil all later sums
  private infs = [0];

  constructor(quantity: string, values: Amount[], ramp: string[], nonFiniteColour: string) {
    super(quantity, ramp, nonFiniteColour);
    const add = (list: number[], amount: number): number => list.push(list[list.length - 1] + amount);
    for (const value of values) {
      add(this.sums, typeof value === "number" ? value : 0);
      add(this.counts, Number(value !== null));
      add(this.nans, Number(value === "NaN"));
      add(this.infs, Number(value === "Infinity"));
    }
  }

  /** The value of a box: that of its items together; null if none is known. */
  value(box: PlacedBox): number | null {
    const end = box.firstItem + (box.view.fullPlan?.size ?? 1);
    const within = (totals: number[]): number => totals[end] - totals[box.firstItem];
    const counts = { known: within(this.counts), nans: within(this.nans), infs: within(this.infs) };
    return joinAmounts(this.quantity, within(this.sums), counts);
  }

  /** Fit the range to the visible values. */
  fit(boxes: PlacedBox[]): void {
    this.fitValues(boxes.map((box) => (box.view.composed ? null : this.value(box))));
  }

  paint(box: PlacedBox, look: string): Paint | null {
    const value = this.value(box);
    return value === null || UNPAINTED_LOOKS.includes(look) ? null : this.paintValue(value);
  }
}
