// Follow tensors from a box through the enclosing frames to the nearest boxes before and after it.
import type { Layout } from "./compose";
import { EdgeFlow } from "../payload";
import type { PlacedBox } from "./placement";

export interface EdgeTrace {
  segments: [frame: PlacedBox, route: number][];
  before: PlacedBox[]; // boxes it reads from
  after: PlacedBox[]; // boxes that read from it
}

const MAX_SEGMENTS = 4000; // segments: a larger trace is unreadable

/** The routes of all tensors that enter or leave a box. */
export function traceEdges(box: PlacedBox): EdgeTrace {
  const result: EdgeTrace = { segments: [], before: [], after: [] };
  if (!box.parent) return result;
  const node = nodeOf(box);
  const { from, to } = routesOf(box.parent.view.plan!.layout);
  const tracer = new Tracer(result);
  for (const route of to.get(node) ?? []) tracer.followBack(box.parent, route);
  for (const route of from.get(node) ?? []) tracer.followForward(box.parent, route);
  result.before = [...tracer.before].filter((neighbour) => neighbour !== box);
  result.after = [...tracer.after].filter((neighbour) => neighbour !== box);
  return result;
}

class Tracer {
  before = new Set<PlacedBox>();
  after = new Set<PlacedBox>();
  private visited = new Set<string>();

  constructor(private readonly trace: EdgeTrace) {}

  followBack(frame: PlacedBox, number: number): void {
    if (!this.visit(frame, number, "back")) return;
    const { layout } = frame.view.plan!;
    const { source, exit } = layout.routes[number];
    if (source < layout.entries) {
      this.forEachRoute(frame.parent, "to", nodeOf(frame), (route, outer) => {
        if (route.entry === source) this.followBack(frame.parent!, outer);
      });
      return;
    }
    const child = frame.children[source - layout.entries];
    if (!child.view.composed) (isGradient(frame, number) ? this.after : this.before).add(child);
    else this.forEachRoute(child, "to", firstExit(child) + exit, (_, inner) => this.followBack(child, inner));
  }

  followForward(frame: PlacedBox, number: number): void {
    if (!this.visit(frame, number, "forth")) return;
    const { layout } = frame.view.plan!;
    const { target, entry } = layout.routes[number];
    const end = layout.entries + layout.children;
    if (target >= end) {
      this.forEachRoute(frame.parent, "from", nodeOf(frame), (route, outer) => {
        if (route.exit === target - end) this.followForward(frame.parent!, outer);
      });
      return;
    }
    const child = frame.children[target - layout.entries];
    if (!child.view.composed) (isGradient(frame, number) ? this.before : this.after).add(child);
    else this.forEachRoute(child, "from", entry, (_, inner) => this.followForward(child, inner));
  }

  private visit(frame: PlacedBox, number: number, direction: string): boolean {
    const key = `${direction} ${frame.path} ${number}`;
    if (this.visited.has(key) || this.visited.size >= MAX_SEGMENTS) return false;
    this.visited.add(key);
    this.trace.segments.push([frame, number]);
    return true;
  }

  private forEachRoute(
    frame: PlacedBox | null,
    end: "from" | "to",
    node: number,
    visit: (route: Layout["routes"][number], number: number) => void,
  ): void {
    if (!frame) return;
    const { layout } = frame.view.plan!;
    for (const number of routesOf(layout)[end].get(node) ?? []) visit(layout.routes[number], number);
  }
}

/** Whether a route is read against its direction: a gradient comes from the box below. */
function isGradient(frame: PlacedBox, number: number): boolean {
  return frame.view.plan!.flows[number] === EdgeFlow.gradient;
}

function nodeOf(box: PlacedBox): number {
  return box.parent ? box.parent.view.plan!.layout.entries + box.childIndex : -1;
}

function firstExit(frame: PlacedBox): number {
  const { entries, children } = frame.view.plan!.layout;
  return entries + children;
}

interface Routes {
  from: Map<number, number[]>; // node -> routes that leave it
  to: Map<number, number[]>;
}

const routeCache = new WeakMap<Layout, Routes>();

function routesOf(layout: Layout): Routes {
  let routes = routeCache.get(layout);
  if (!routes) {
    routeCache.set(layout, (routes = { from: new Map(), to: new Map() }));
    layout.routes.forEach(({ source, target }, number) => {
      append(routes!.from, source, number);
      append(routes!.to, target, number);
    });
  }
  return routes;
}

function append(map: Map<number, number[]>, key: number, value: number): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}
