// Follow tensors from a box through the frames around it, to the nearest boxes before and after.
import type { Layout } from "./compose";
import { Carries } from "../payload";
import type { Placed } from "./placement";

export interface Trace {
  segments: [frame: Placed, route: number][];
  before: Placed[]; // boxes it reads from
  after: Placed[]; // boxes that read from it
}

const ENOUGH = 4000; // segments: more is no answer to look at

/** The ways of all tensors that enter or leave a box. */
export function trace(box: Placed): Trace {
  const found: Trace = { segments: [], before: [], after: [] };
  if (!box.parent) return found;
  const node = nodeOf(box);
  const { from, to } = routesOf(box.parent.view.plan!.layout);
  const tracer = new Tracer(found);
  for (const route of to.get(node) ?? []) tracer.back(box.parent, route);
  for (const route of from.get(node) ?? []) tracer.forth(box.parent, route);
  found.before = [...tracer.before].filter((one) => one !== box);
  found.after = [...tracer.after].filter((one) => one !== box);
  return found;
}

class Tracer {
  before = new Set<Placed>();
  after = new Set<Placed>();
  private seen = new Set<string>();

  constructor(private readonly found: Trace) {}

  back(frame: Placed, number: number): void {
    if (!this.take(frame, number, "back")) return;
    const { layout } = frame.view.plan!;
    const { source, exit } = layout.routes[number];
    if (source < layout.entries) {
      this.each(frame.parent, "to", nodeOf(frame), (route, outer) => {
        if (route.entry === source) this.back(frame.parent!, outer);
      });
      return;
    }
    const child = frame.inside[source - layout.entries];
    if (!child.view.composed) (runsBack(frame, number) ? this.after : this.before).add(child);
    else this.each(child, "to", firstExit(child) + exit, (_, inner) => this.back(child, inner));
  }

  forth(frame: Placed, number: number): void {
    if (!this.take(frame, number, "forth")) return;
    const { layout } = frame.view.plan!;
    const { target, entry } = layout.routes[number];
    const end = layout.entries + layout.children;
    if (target >= end) {
      this.each(frame.parent, "from", nodeOf(frame), (route, outer) => {
        if (route.exit === target - end) this.forth(frame.parent!, outer);
      });
      return;
    }
    const child = frame.inside[target - layout.entries];
    if (!child.view.composed) (runsBack(frame, number) ? this.before : this.after).add(child);
    else this.each(child, "from", entry, (_, inner) => this.forth(child, inner));
  }

  private take(frame: Placed, number: number, way: string): boolean {
    const key = `${way} ${frame.path} ${number}`;
    if (this.seen.has(key) || this.seen.size >= ENOUGH) return false;
    this.seen.add(key);
    this.found.segments.push([frame, number]);
    return true;
  }

  private each(
    frame: Placed | null,
    end: "from" | "to",
    node: number,
    visit: (route: Layout["routes"][number], number: number) => void,
  ): void {
    if (!frame) return;
    const { layout } = frame.view.plan!;
    for (const number of routesOf(layout)[end].get(node) ?? []) visit(layout.routes[number], number);
  }
}

/** Whether a route is read against its direction: a gradient comes from what stands below. */
function runsBack(frame: Placed, number: number): boolean {
  return frame.view.plan!.flows[number] === Carries.gradient;
}

function nodeOf(box: Placed): number {
  return box.parent ? box.parent.view.plan!.layout.entries + box.position : -1;
}

function firstExit(frame: Placed): number {
  const { entries, children } = frame.view.plan!.layout;
  return entries + children;
}

interface Routes {
  from: Map<number, number[]>; // node -> routes that leave it
  to: Map<number, number[]>;
}

const known = new WeakMap<Layout, Routes>();

function routesOf(layout: Layout): Routes {
  let found = known.get(layout);
  if (!found) {
    known.set(layout, (found = { from: new Map(), to: new Map() }));
    layout.routes.forEach(({ source, target }, number) => {
      append(found!.from, source, number);
      append(found!.to, target, number);
    });
  }
  return found;
}

function append(map: Map<number, number[]>, key: number, value: number): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}
