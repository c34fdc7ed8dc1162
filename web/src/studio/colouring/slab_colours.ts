// The colours of slabs by a number: the same scale that colours the boxes of the graph.
import { QuantityScale, totalAmount, type Amount } from "../../graph/render/quantity_scale";
import { walk } from "../network/fold/scene_tree";
import type { VisibleNet } from "../network/fold/visible_net";
import { findColourMap } from "../network/values/colour_maps";

export const RAMP = findColourMap("Cividis").stops; // as drawing/looks/colours.py has it
const NON_FINITE = "#c2187f";

/** A slab's colour, and its number as text. */
export interface SlabColour {
  fill: string; // "" where its number is not known
  text: string;
}

/** The colours of all slabs that are shown. */
export interface SlabColours {
  scale: QuantityScale;
  slabs: ReadonlyMap<string, SlabColour>; // by the layer's name
  hasNonFinite: boolean;
}

/** Colour slabs by what the layers inside of each have together. */
export function slabColours(visible: VisibleNet, quantity: string, amounts: ReadonlyMap<string, Amount>): SlabColours {
  const scale = new QuantityScale(quantity, RAMP, NON_FINITE);
  const values = [...visible.items].map(([layer, { node }]): [string, number | null] => {
    const inside = node ? [...walk(node)].flatMap(({ sort, face }) => (sort === "layer" ? [face!.layer.name] : [])) : [layer]; // prettier-ignore
    const isInput = node?.sort === "layer" && node.kind === "Input"; // it computes nothing
    if (isInput) return [layer, null];
    return [layer, totalAmount(quantity, inside.map((name) => amounts.get(name) ?? null))]; // prettier-ignore
  });
  scale.fitValues(values.map(([, value]) => value));
  const colour = (value: number | null): SlabColour =>
    value === null ? { fill: "", text: "" } : { fill: scale.paintValue(value).fill, text: scale.formatValue(value) };
  return {
    scale,
    slabs: new Map(values.map(([layer, value]) => [layer, colour(value)])),
    hasNonFinite: values.some(([, value]) => value !== null && !Number.isFinite(value)),
  };
}
