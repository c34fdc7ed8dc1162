// The drawing as the server sends it: its payload and the layer of each item; later its details.
import { Details, fromBase64, parsePayload, unpack, type Payload } from "../../graph/payload";
import type { Store } from "../store";

/** A received drawing. */
export interface GraphText {
  data: Payload;
  layers: string[]; // of each item; "" for none
}

/** Ask for the drawing. */
export async function askDrawing(store: Store): Promise<GraphText> {
  const text = await unpack(new Uint8Array((await store.askGraph("drawing")).bytes));
  const [data, layers] = text.split("\n");
  return { data: parsePayload(data), layers: JSON.parse(layers) as string[] };
}

/** Ask for the details of its items, for the panel, the search and the colours. */
export async function askDetails(store: Store): Promise<Details> {
  return new Details(await unpack(new Uint8Array((await store.askGraph("details")).bytes)));
}

/** Load the drawing's font, by which its boxes were measured; from bytes, as the page may load fonts from nowhere else. */
export function loadFont(css: string): void {
  for (const [, weight, text] of css.matchAll(/font-weight:(\d+);src:url\(data:font\/woff2;base64,([^)]+)\)/g)) {
    const isLoaded = [...document.fonts].some((face) => face.family.includes(FAMILY) && face.weight === weight);
    if (!isLoaded) document.fonts.add(new FontFace(FAMILY, fromBase64(text), { weight }));
  }
}

const FAMILY = "torcheer Sans";
