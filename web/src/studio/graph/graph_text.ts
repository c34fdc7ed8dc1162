// The drawing as the server sends it: its payload, the layer of each item, and its details.
import { fromBase64, parsePayload, unpack, type Payload } from "../../graph/payload";

/** A received drawing; the details are parsed later. */
export interface GraphText {
  data: Payload;
  layers: string[];
  details: string;
}

/** Unpack an answer to `ask_graph`. */
export async function readGraph(bytes: Uint8Array): Promise<GraphText> {
  const text = await unpack(new Uint8Array(bytes));
  const second = text.indexOf("\n");
  const third = text.indexOf("\n", second + 1);
  const layers = JSON.parse(text.slice(second + 1, third)) as string[];
  return { data: parsePayload(text.slice(0, second)), layers, details: text.slice(third + 1) };
}

/** Load the drawing's font, by which its boxes were measured; from bytes, as the page may load fonts from nowhere else. */
export function loadFont(css: string): void {
  for (const [, weight, text] of css.matchAll(/font-weight:(\d+);src:url\(data:font\/woff2;base64,([^)]+)\)/g)) {
    const isLoaded = [...document.fonts].some((face) => face.family.includes(FAMILY) && face.weight === weight);
    if (!isLoaded) document.fonts.add(new FontFace(FAMILY, fromBase64(text), { weight }));
  }
}

const FAMILY = "torcheer Sans";
