// A number for each layer, by which the 3D view colours its slabs: those that the graph colours its boxes by.
import {
  colourChoices,
  legendOf,
  totalAmount,
  type Amount,
  type ColourChoice,
} from "../../graph/render/quantity_scale";
import { QUANTITIES } from "../../vocabulary";
import { askDetails, askDrawing } from "../graph/graph_text";
import { layerValues } from "../graph/layer_overlays";
import { Signal, type Store } from "../store";

export type LayerAmounts = Record<string, ReadonlyMap<string, Amount>>; // by quantity, then by layer

// Whether the drawing of a recorded pass brings a quantity.
const isOfPass = (quantity: string): boolean => QUANTITIES[quantity]?.source === "pass";

/** The amounts of a store's network. */
export class LayerNumbers {
  readonly ofPass = new Signal<LayerAmounts | null>(null); // null until they came
  private timeName = "time"; // what its times are, for the legend
  private askedFor: unknown = null; // the network whose drawing was asked for

  constructor(private readonly store: Store) {}

  /** The amounts that are known; those of a recorded pass once they were asked for. */
  amounts(): LayerAmounts {
    const { net, tables, alerts, shownStep } = this.store;
    const values = layerValues({ net: net.get(), tables: tables.get(), alerts: alerts.get(), step: shownStep });
    const logged = Object.fromEntries(Object.entries(values).filter(([, amounts]) => amounts.size));
    return { ...this.ofPass.get(), ...logged };
  }

  /** What a quantity's numbers are, as the graph's legend says it. */
  nameOf(quantity: string): string {
    return legendOf(quantity, this.timeName);
  }

  /** The ways to colour; those of a pass can be chosen before its numbers came. */
  choices(): ColourChoice[] {
    const isOpen = this.store.hello.get()?.source === "pass" && !this.ofPass.get();
    return colourChoices(Object.keys(this.amounts()), this.timeName).map((choice) =>
      isOpen && isOfPass(choice.quantity) ? { ...choice, reason: "" } : choice,
    );
  }

  /** Ask for the numbers of a recorded pass, where the quantity needs them. */
  async ask(quantity: string): Promise<void> {
    const net = this.store.net.get();
    const isNeeded = this.store.hello.get()?.source === "pass" && isOfPass(quantity) && net !== null;
    if (!isNeeded || this.askedFor === net) return;
    this.askedFor = net;
    this.ofPass.set(null);
    const [{ layers, data }, { overlays }] = await Promise.all([askDrawing(this.store), askDetails(this.store)]);
    if (this.askedFor !== net) return;
    this.timeName = data.time_name;
    this.ofPass.set(amountsOfLayers(layers, overlays));
  }
}

/** What the items of each layer have together; `layers` is the layer of each item, "" for none. */
export function amountsOfLayers(layers: readonly string[], overlays: Record<string, readonly Amount[]>): LayerAmounts {
  const items = new Map<string, number[]>();
  layers.forEach((layer, item) => layer && items.set(layer, [...(items.get(layer) ?? []), item]));
  const amounts = (quantity: string): Map<string, Amount> => {
    const total = ([layer, own]: [string, number[]]): [string, Amount] => [layer, asAmount(totalAmount(quantity, own.map((item) => overlays[quantity][item])))]; // prettier-ignore
    return new Map([...items].map(total));
  };
  return Object.fromEntries(Object.keys(overlays).map((quantity) => [quantity, amounts(quantity)]));
}

// As Python writes it: sums of sums know these names.
function asAmount(value: number | null): Amount {
  return value === null || Number.isFinite(value) ? value : Number.isNaN(value) ? "NaN" : "Infinity";
}
