// Which layers a text names: the forms of torcheer's `selection.py` that can be typed, for the search field.

export interface NamedLayer {
  kind: string; // class of a module, "Conv2d"
  address: string; // module address, "layer1.0.conv1"
  label: string; // an operation's label, "conv2d_3_7" or "conv2d_3_7:2"
}

export type Selector = (layer: NamedLayer) => boolean;

const LABEL = /^([a-z0-9]+_\d+)_(\d+)(?::(\d+))?$/;
const SHAPE = /^\d+(\s*[x×,*]\s*\d+)+$/;

/** The layers that a text selects by the grammar of layers; null if it is only a text to search for. */
export function parseSelector(text: string, operations: number): Selector | null {
  const key = text.trim();
  if (!key || SHAPE.test(key)) return null;
  if (key === "all") return () => true;
  if (/^-?\d+$/.test(key)) {
    const position = Number(key) < 0 ? Number(key) + operations : Number(key);
    return (layer) => positionOf(layer.label) === position;
  }
  if (/[*?[]/.test(key)) {
    const pattern = globPattern(key);
    return (layer) => [...namesOf(layer), layer.kind].some((name) => pattern.test(name));
  }
  const [start] = key.split(":"); // all names of an operation begin as its label does
  return (layer) =>
    layer.kind === key || layer.address === key || (layer.label.startsWith(start) && namesOf(layer).includes(key));
}

/** The position in an operation's label; -1 for a module. */
export function positionOf(label: string): number {
  return Number(LABEL.exec(label)?.[2] ?? -1);
}

/** Every name of a layer: of 'relu_1_2:3' also 'relu_1', 'relu_1_2' and 'relu_1:3'. */
function namesOf({ address, label }: NamedLayer): string[] {
  const parts = LABEL.exec(label);
  if (!parts) return label ? [address, label] : [address];
  const [, short, position, pass] = parts;
  const names = [address, label, short, `${short}_${position}`];
  return pass ? [...names, `${short}:${pass}`] : names;
}

/** A shell pattern as Python's fnmatchcase reads it. */
export function globPattern(glob: string): RegExp {
  let source = "";
  for (let n = 0; n < glob.length; n++) {
    const close = glob[n] === "[" ? glob.indexOf("]", n + (glob[n + 1] === "!" ? 3 : 2)) : -1;
    if (glob[n] === "*") source += ".*";
    else if (glob[n] === "?") source += ".";
    else if (close > 0) {
      const inside = glob
        .slice(n + 1, close)
        .replace(/[\\[\]]/g, "\\$&")
        .replace(/^!/, "^");
      source += `[${inside}]`;
      n = close;
    } else source += glob[n].replace(/[.+^${}()|[\]\\]/g, "\\$&");
  }
  return new RegExp(`^${source}$`, "su");
}
