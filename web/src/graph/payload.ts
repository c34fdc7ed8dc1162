// The payload that Python embeds in the page (src/torcheer/drawing/writers/html_page.py): parsing, and what each field
// means.
import type { Box, Layout, Metrics, Ports, Route } from "./layout/compose";

/** The appearance of an item or a folded box. */
export interface Leaf {
  boxes: [down: Box, right: Box];
  svg: string[]; // escaped by Python; the second is for the direction right, where that differs
  kind: string; // class or function
  body: string;
  look: string;
  family: string;
  badge: string; // the same letters on all boxes that share weights
  entries: string[]; // the name at each entry, "" for none
  exits: string[]; // the shape at each exit, "" for none
  marks: string[]; // marks that the legend must explain
  pictureSpace?: number; // height below its text that is kept free for a picture; none where the page shows no pictures
}

/** The title of an open box, line by line. */
export interface TitleText {
  width: number;
  lines: [x: number, text: string, tone: string][][];
}

/** A part of a box: its folded appearance and, if it can be opened, its plan and titles. */
export interface Part {
  leaf: number;
  plan: number; // -1 for an item
  titles: [down: number, right: number];
}

export interface Plan {
  sort: "module" | "function" | "stack" | "pill" | "root";
  kind: string;
  times: number;
  names: string[];
  parts: Part[];
  first: number[]; // index of each part's first item, relative to this box's first item
  size: number; // number of items in it, at any depth
  layout: Layout;
  flows: number[]; // for each route what it carries, a value of EdgeFlow
}

export interface Theme {
  paper: string;
  ink: string;
  soft: string;
  line: string;
  faint: string;
  frame: string;
  tint: string;
  tint_opacity: number;
  card: string;
  loop: string;
  alarm: string;
  gradient: string;
  kept: string;
}

/** What a route carries: a value without or with a gradient, a value kept for backward, or a gradient flowing back. */
export const EdgeFlow = { still: 0, flows: 1, kept: 2, gradient: 3 } as const;

export interface Payload {
  font: string; // CSS rules with the embedded font
  header: string[];
  theme: string;
  colours: { light: Theme; dark: Theme; dark_rules: string; ramp: string[]; strange: string };
  metrics: Metrics;
  flowing: boolean;
  wrap_cost: number; // cost of each wrap, where the eye must jump
  root: number;
  plans: Plan[];
  leaves: Leaf[];
  titles: TitleText[];
  view: { down: boolean; limit: number; open: string[] };
  colour_by: string;
  time_name: string; // what its times are: those of launches, perhaps
  legend: Record<string, [swatch: string, words: string][]>;
  steps?: number[]; // of a backward pass, for each item: twice the index of its op, one more for its rule; -1: the loss
}

/** Details of an item: its label, the address of its module, and key-value pairs to show. */
export type ItemDetails = [label: string, around: string, facts: [key: string, value: string][]];

// As Python writes them: positional lists.
type RawBox = [number, number, Ports, Ports, number, number, number, number];
type RawRoute = [number, number, number, number, number, number, Route["side"], 0 | 1 | boolean];
type RawLayout = Omit<Layout, "rowCount" | "columnCount" | "routes"> & {
  row_count: number;
  column_count: number;
  routes: RawRoute[];
};
type RawPayload = Omit<Payload, "leaves" | "plans"> & {
  leaves: (Omit<Leaf, "boxes"> & { boxes: [RawBox, RawBox] })[];
  plans: (Omit<Plan, "layout" | "parts"> & { layout: RawLayout; parts: number[][] })[];
};
type Overlays = Record<string, (number | string | null)[]>;

/** The bytes of base64 text. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Unpack a text: a zlib stream. */
export async function unpack(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** Parse the payload: positional lists become named fields. */
export function parsePayload(text: string): Payload {
  const raw = JSON.parse(text) as RawPayload;
  raw.view.limit ??= Infinity;
  const leaves = raw.leaves.map((leaf) => ({ ...leaf, boxes: leaf.boxes.map(readBox) as Leaf["boxes"] }));
  const plans = raw.plans.map((plan) => ({
    ...plan,
    layout: readLayout(plan.layout),
    parts: plan.parts.map(readPart),
  }));
  return { ...raw, leaves, plans };
}

export function readBox(raw: RawBox): Box {
  const [width, height, entries, exits, entryGap, exitGap, entryNote, exitNote] = raw;
  return { width, height, entries, exits, entryGap, exitGap, entryNote, exitNote };
}

export function readLayout({ row_count: rowCount, column_count: columnCount, routes, ...raw }: RawLayout): Layout {
  return { ...raw, rowCount, columnCount, routes: routes.map(readRoute) };
}

function readRoute([source, exit, target, entry, net, lane, side, back]: RawRoute): Route {
  return { source, exit, target, entry, net, lane, side, back: Boolean(back) };
}

function readPart([leaf, inner = -1, down = -1, right = -1]: number[]): Part {
  return { leaf, plan: inner, titles: [down, right] };
}

/** Details parsed after the page is shown; each item is parsed on demand. */
export class Details {
  readonly overlays: Overlays;
  private readonly lines: string[];

  constructor(text: string) {
    const [first, ...lines] = text.split("\n");
    this.overlays = JSON.parse(first) as Overlays;
    this.lines = lines;
  }

  get count(): number {
    return this.lines.length;
  }

  item(number: number): ItemDetails {
    return JSON.parse(this.lines[number]) as ItemDetails;
  }
}
