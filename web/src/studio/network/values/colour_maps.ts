// Colour maps: a few stops each, interpolated to 256 colours for the shader, the legend and the tooltip.

export interface ColourMap {
  name: string;
  title: string;
  diverging: boolean; // its middle is neutral, so that zero-centred values read well
  stops: string[];
}

// ColdHot is NetView's: cyan and blue below zero, grey at zero, red and yellow above.
export const COLOUR_MAPS: readonly ColourMap[] = [
  {
    name: "ColdHot",
    title: "ColdHot",
    diverging: true,
    stops: ["#00ffff", "#0a3cff", "#7f7f7f", "#ff2010", "#ffff00"],
  },
  { name: "BlueOrange", title: "Blue–orange (colour-blind safe)", diverging: true, stops: ["#0a3f73", "#2f7fc0", "#9cc8e6", "#e9e9e6", "#f5b566", "#d9741a", "#7f3500"] }, // prettier-ignore
  { name: "Viridis", title: "Viridis (colour-blind safe)", diverging: false, stops: ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"] }, // prettier-ignore
  { name: "Cividis", title: "Cividis (colour-blind safe)", diverging: false, stops: ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"] }, // prettier-ignore
  { name: "Magma", title: "Magma (colour-blind safe)", diverging: false, stops: ["#0a0722", "#221150", "#5f187f", "#982d80", "#d3436e", "#f8765c", "#febb81", "#fcfdbf"] }, // prettier-ignore
  { name: "Grey", title: "Grey", diverging: false, stops: ["#161616", "#f4f4f4"] },
];

/** The map with this name, or the first one. */
export function findColourMap(name: string): ColourMap {
  return COLOUR_MAPS.find((map) => map.name === name) ?? COLOUR_MAPS[0];
}

/** 256 RGBA colours, from lowest to highest. */
export function buildRamp(map: ColourMap): Uint8Array<ArrayBuffer> {
  const ramp = new Uint8Array(256 * 4);
  for (let n = 0; n < 256; n++) {
    const [red, green, blue] = colourAt(map, n / 255);
    ramp.set([red, green, blue, 255], n * 4);
  }
  return ramp;
}

/** The colour at a fraction between 0 and 1, as three bytes. */
export function colourAt(map: ColourMap, fraction: number): [number, number, number] {
  const position = Math.max(0, Math.min(1, fraction || 0)) * (map.stops.length - 1);
  const low = Math.min(Math.floor(position), map.stops.length - 2);
  const [lowColour, highColour] = [parseColour(map.stops[low]), parseColour(map.stops[low + 1])];
  return lowColour.map((channel, n) => Math.round(channel + (highColour[n] - channel) * (position - low))) as [
    number,
    number,
    number,
  ];
}

/** Parse "#rrggbb" into three bytes. */
export function parseColour(colour: string): [number, number, number] {
  return [1, 3, 5].map((n) => parseInt(colour.slice(n, n + 2), 16)) as [number, number, number];
}
