// The rule that turns a layout and the sizes of its children into coordinates.
//
// It is written twice, here and in src/torcheer/drawing/layout/compose.py, specified in docs/layout.md, and both are
// tested on the same vectors (tests/data/compose.json). "Along" is the direction of data flow (down the page, or
// right), "across" is the other one. Sums keep the order they have in Python: the last bit counts.

export type Point = [number, number];
export type Ports = number[] | number; // positions across, or a number of ports to spread over the side

export interface Metrics {
  pad: number;
  title: number;
  line: number;
  column: number;
  lane: number;
  track: number;
  gap: number;
  arrow: number;
  note: number;
  gutter: number;
  cut: number;
  cost: number;
  least: number;
  worth: number;
  search: number;
}

export interface Title {
  width: number;
  lines: number;
}

export interface Box {
  width: number;
  height: number;
  entries: Ports;
  exits: Ports;
  entryGap: number;
  exitGap: number;
  entryNote: number;
  exitNote: number;
}

export interface Route {
  source: number;
  exit: number;
  target: number;
  entry: number;
  net: number;
  lane: number;
  side: "" | "left" | "right";
  back: boolean;
}

export interface Layout {
  entries: number;
  children: number;
  exits: number;
  rows: number[];
  columns: number[];
  anchors: number[];
  leads: number[];
  spans: number[];
  rowCount: number;
  columnCount: number;
  cuts: number[];
  routes: Route[];
}

export interface Composed {
  box: Box;
  places: Point[]; // of the children
  paths: Point[][]; // of the routes
  entries: number[][]; // of each child, across; -1 if the edge enters from the side
  exits: number[][];
  bands: number; // number of bands the box is cut into
}

interface Stretch {
  first: number;
  last: number;
  before: number;
  after: number;
}

type Run = [channel: number, start: number, end: number];

/** A box with port positions or port counts, and no notes. */
export function plainBox(width: number, height: number, entries: Ports, exits: Ports): Box {
  return { width, height, entries, exits, entryGap: 16, exitGap: 16, entryNote: 0, exitNote: 0 };
}

/** Place the children and route the edges between them. */
export function compose(
  layout: Layout,
  boxes: Box[],
  title: Title | null,
  down: boolean,
  limit: number,
  metrics: Metrics,
): Composed {
  return new Composition(layout, boxes, down, limit, metrics).finish(title);
}

class Composition {
  boxes: Box[];
  along: number[];
  across: number[];
  sides = new Set<string>();
  entries: number[][];
  exits: number[][];
  anchors: number[];
  rows: number[]; // length of each row
  notes: Point[]; // room for text above and below each row
  bandOf: number[];
  bands: number;
  last: number[]; // the last row of each band
  outgoingNets: Set<number>[]; // the nets that continue in a later band
  middle: number[][] = [];
  gutters: Map<number, number>[] = [];
  totalAcross = 0;
  runs: Run[][];
  trackOf: Map<number, number>[] = [];
  trackCount: number[] = [];
  rowStart: number[] = [];
  totalAlong = 0;

  constructor(
    readonly layout: Layout,
    boxes: Box[],
    readonly down: boolean,
    limit: number,
    readonly metrics: Metrics,
  ) {
    const port = plainBox(0, 0, [0], [0]);
    this.boxes = [...repeat(port, layout.entries), ...boxes, ...repeat(port, layout.exits)];
    this.along = this.boxes.map((box) => (down ? box.height : box.width));
    this.across = this.boxes.map((box) => (down ? box.width : box.height));
    for (const { target, entry, side } of layout.routes) if (side) this.sides.add(`${target} ${entry}`);
    const ports = this.boxes.map((_, node) => this.ports(node));
    this.entries = ports.map(([entries]) => entries);
    this.exits = ports.map(([, exits]) => exits);
    this.anchors = this.boxes.map((_, node) => this.anchor(node));
    this.rows = repeat(0, layout.rowCount);
    this.notes = this.rows.map(() => [0, 0]);
    layout.rows.forEach((row, node) => {
      const { entryNote, exitNote } = this.boxes[node];
      if (layout.spans[node] === row) this.rows[row] = Math.max(this.rows[row], this.along[node]);
      [entryNote, exitNote].forEach((width, end) => {
        if (width) this.notes[row][end] = Math.max(this.notes[row][end], down ? metrics.note : width + 6);
      });
    });
    this.bandOf = this.bandsOf(limit);
    this.bands = this.bandOf[this.bandOf.length - 1] + 1;
    this.last = repeat(0, this.bands);
    this.bandOf.forEach((band, row) => (this.last[band] = row));
    this.outgoingNets = this.last.map(() => new Set());
    for (const { source, target, net, back } of layout.routes) {
      const band = this.bandOf[layout.rows[source]];
      if (!back && this.bandOf[layout.rows[target]] > band) this.outgoingNets[band].add(net);
    }
    this.columns();
    this.runs = layout.routes.map((route) => this.runsOf(route));
    this.tracks();
    this.placeRows();
  }

  // Ports

  /** Where edges enter and leave. A single port lies opposite the main port of the other side, so that lines run
   * straight. */
  ports(node: number): [entries: number[], exits: number[]] {
    const box = this.boxes[node];
    if (typeof box.entries !== "number" || typeof box.exits !== "number") {
      return [box.entries as number[], box.exits as number[]];
    }
    const [anchor, lead] = [this.layout.anchors[node], this.layout.leads[node]];
    const top: number[] = [];
    for (let entry = 0; entry < box.entries; entry++) if (!this.sides.has(`${node} ${entry}`)) top.push(entry);
    let places = spread(top.length, this.across[node], box.entryGap);
    let exits = spread(box.exits, this.across[node], box.exitGap);
    if (top.length === 1 && box.exits > 1 && lead >= 0) places = [exits[lead]];
    const entries = repeat(-1, box.entries);
    top.forEach((entry, n) => (entries[entry] = places[n]));
    if (box.exits === 1 && anchor >= 0 && entries[anchor] >= 0) exits = [entries[anchor]];
    return [entries, exits];
  }

  anchor(node: number): number {
    const entry = this.layout.anchors[node];
    const exit = Math.max(0, this.layout.leads[node]);
    if (entry >= 0 && this.entries[node][entry] >= 0) return this.entries[node][entry];
    return this.exits[node].length ? this.exits[node][exit] : this.across[node] / 2;
  }

  // Bands: a long box is cut into pieces that lie side by side

  bandsOf(limit: number): number[] {
    const { layout, metrics } = this;
    const reach: number[] = [];
    let total = 0;
    this.rows.forEach((length, row) => {
      total += length + metrics.gap + metrics.arrow + this.notes[row][0] + this.notes[row][1];
      reach.push(total);
    });
    const bandCount = Math.ceil(total / limit);
    const cutRows: number[] = [];
    for (let row = 1; row < layout.rowCount - 2; row++) {
      if (0 <= layout.cuts[row] && layout.cuts[row] <= metrics.cut) cutRows.push(row);
    }
    const cuts = new Set<number>();
    for (let number = 1; number < (cutRows.length ? bandCount : 1); number++) {
      const goal = (total * number) / bandCount;
      const place = cutRows.findIndex((row) => reach[row] >= goal);
      cuts.add(this.bestCut(cutRows, reach, goal, place < 0 ? cutRows.length : place));
    }
    const least = (metrics.least * total) / Math.max(bandCount, 1);
    const bandEnds = [0];
    for (const row of [...cuts].sort((first, second) => first - second)) {
      if (reach[row] - bandEnds[bandEnds.length - 1] < least || total - reach[row] < least) cuts.delete(row);
      else bandEnds.push(reach[row]);
    }
    bandEnds.push(total);
    if (largest(bandEnds.slice(1).map((end, n) => end - bandEnds[n])) > metrics.worth * total) cuts.clear();
    let band = 0;
    return this.rows.map((_, row) => (cuts.has(row) ? band++ : band));
  }

  bestCut(cutRows: number[], reach: number[], goal: number, place: number): number {
    const { layout, metrics } = this;
    let best = -1;
    let least = Infinity;
    for (let n = Math.max(0, place - metrics.search); n < Math.min(cutRows.length, place + metrics.search); n++) {
      const row = cutRows[n];
      const cost = Math.abs(reach[row] - goal) + (layout.cuts[row] - 1) * metrics.cost;
      if (cost < least) [best, least] = [row, cost];
    }
    return best;
  }

  /** Across: place columns from the main one outwards, each as close as the rows it shares with earlier columns allow. */
  columns(): void {
    const { layout, metrics } = this;
    const stretches = this.stretches();
    const nodesIn = Array<number>(layout.columnCount).fill(0);
    for (const column of layout.columns) nodesIn[column]++;
    const main = Math.max(0, nodesIn.indexOf(largest(nodesIn)));
    const order: number[] = [];
    for (let column = main; column < layout.columnCount; column++) order.push(column);
    for (let column = main - 1; column >= 0; column--) order.push(column);
    let across = 0;
    for (let band = 0; band < this.bands; band++) {
      const middle = Array<number>(layout.columnCount).fill(0);
      const right = new Map<number, number>(); // how far each row extends from the main column's middle
      const left = new Map<number, number>();
      for (const column of order) {
        const behind = column >= main;
        const outward = behind ? right : left;
        let place = 0;
        if (column !== main) {
          for (const { first, last, before, after } of stretches[band][column]) {
            for (let row = first; row <= last; row++) {
              place = Math.max(place, (outward.get(row) ?? 0) + (behind ? before : after));
            }
          }
        }
        for (const { first, last, before, after } of stretches[band][column]) {
          for (let row = first; row <= last; row++) {
            outward.set(row, Math.max(outward.get(row) ?? 0, place + (behind ? after : before)));
            if (column === main) left.set(row, Math.max(left.get(row) ?? 0, before));
          }
        }
        middle[column] = behind ? place : -place;
      }
      const start = across + largest([...left.values()]);
      this.middle.push(middle.map((place) => place + start));
      across = start + largest([...right.values()]);
      const gutter = new Map<number, number>();
      if (this.outgoingNets[band].size) {
        across += metrics.gutter;
        for (const net of this.outgoingNets[band]) {
          gutter.set(net, across);
          across += metrics.lane;
        }
        across += metrics.gutter - metrics.lane;
      }
      this.gutters.push(gutter);
    }
    this.totalAcross = across;
  }

  /** For each band and column: the occupied rows, and their extent before and after the column's middle. */
  stretches(): Stretch[][][] {
    const { layout, metrics } = this;
    const stretches: Stretch[][][] = this.last.map(() => Array.from({ length: layout.columnCount }, () => []));
    layout.rows.forEach((row, node) => {
      const [band, anchor, { exitNote }] = [this.bandOf[row], this.anchors[node], this.boxes[node]];
      const inside = layout.entries <= node && node < layout.entries + layout.children;
      const pad = inside ? metrics.column / 2 : metrics.lane / 2;
      let room = this.across[node] - anchor;
      if (this.down && exitNote) room = Math.max(room, largest(this.exits[node]) - anchor + 5 + exitNote);
      const last = Math.min(layout.spans[node], this.last[band]);
      stretches[band][layout.columns[node]].push({ first: row, last, before: anchor + pad, after: room + pad });
    });
    for (const route of layout.routes) {
      if (route.lane < 0) continue;
      const [source, target] = [layout.rows[route.source], layout.rows[route.target]];
      const [low, high] = [Math.min(source, target), Math.max(source, target)];
      for (let band = this.bandOf[low]; band <= this.bandOf[high]; band++) {
        const first = Math.max(low, band ? this.last[band - 1] + 1 : 0);
        const isOwnLane = route.lane === layout.columns[route.source] && band === this.bandOf[low] && !route.back;
        const offset = isOwnLane ? this.exits[route.source][route.exit] - this.anchors[route.source] : 0;
        const last = Math.min(high, this.last[band]);
        stretches[band][route.lane].push({
          first,
          last,
          before: metrics.lane / 2 - offset,
          after: metrics.lane / 2 + offset,
        });
      }
    }
    return stretches;
  }

  // Edges: each is a list of runs across, in the channels between rows

  x(node: number, place: number): number {
    const { rows, columns } = this.layout;
    return this.middle[this.bandOf[rows[node]]][columns[node]] - this.anchors[node] + place;
  }

  /** Which channels an edge crosses, and from where to where. The channel below row r is r; the one above all bands but
   * the first is the number of rows. */
  runsOf(route: Route): Run[] {
    const { rows, rowCount: top } = this.layout;
    const [first, last] = [rows[route.source], rows[route.target]];
    const start = this.x(route.source, this.exits[route.source][route.exit]);
    const end = this.targetX(route);
    const [band, targetBand] = [this.bandOf[first], this.bandOf[last]];
    if (route.back) {
      const lane = this.middle[band][route.lane];
      return [[first, start, lane], [last - 1, lane, end]]; // prettier-ignore
    }
    const isOwnLane = route.lane === this.layout.columns[route.source];
    if (band === targetBand) {
      if (route.lane < 0) return [[first, start, end]];
      const lane = isOwnLane ? start : this.middle[band][route.lane];
      return route.side ? [[first, start, lane]] : [[first, start, lane], [last - 1, lane, end]]; // prettier-ignore
    }
    const gutter = this.gutters[band].get(route.net)!;
    const bottom = this.last[band];
    const runs: Run[] = [];
    let lane = start;
    if (first < bottom && !isOwnLane) {
      lane = this.middle[band][route.lane];
      runs.push([first, start, lane]);
    }
    runs.push([bottom, lane, gutter]);
    if (this.bandOf[last - 1] < targetBand && !route.side) return [...runs, [top, gutter, end]];
    lane = this.middle[targetBand][route.lane];
    runs.push([top, gutter, lane]);
    return route.side ? runs : [...runs, [last - 1, lane, end]];
  }

  targetX({ side, target, entry }: Route): number {
    if (side === "left") return this.x(target, 0);
    if (side === "right") return this.x(target, this.across[target]);
    return this.x(target, this.entries[target][entry]);
  }

  /** Along: in a channel, runs that would touch get different tracks. */
  tracks(): void {
    const count = this.layout.rowCount + 1;
    const spans = Array.from({ length: count }, () => new Map<number, Point>());
    const above = spans.map(() => new Map<number, number>());
    const below = spans.map(() => new Map<number, number[]>());
    this.layout.routes.forEach(({ net }, n) => {
      for (const [channel, start, end] of this.runs[n]) {
        if (start === end) continue;
        const span = setDefault<number, Point>(spans[channel], net, () => [start, start]);
        span[0] = Math.min(span[0], start, end);
        span[1] = Math.max(span[1], start, end);
        above[channel].set(start, net);
        setDefault<number, number[]>(below[channel], end, () => []).push(net);
      }
    });
    spans.forEach((nets, channel) => {
      const [tracks, count] = assignTracks(
        orderNets(nets, above[channel], below[channel]),
        nets,
        this.metrics.lane / 2,
      );
      this.trackOf.push(tracks);
      this.trackCount.push(count);
    });
  }

  /** Length of the channel below a row. */
  channel(row: number): number {
    const { metrics, notes } = this;
    const below = row + 1 < this.layout.rowCount ? notes[row + 1][0] : 0;
    const tracks = this.trackCount[row] * metrics.track;
    if (row === 0 && !tracks) return below;
    if (row === this.layout.rowCount - 2) return metrics.gap + notes[row][1] + tracks;
    return metrics.gap + notes[row][1] + tracks + below + metrics.arrow;
  }

  placeRows(): void {
    const { layout, metrics } = this;
    const tallNodes = new Map<number, number[]>(); // row -> tall nodes that must end in this row at the latest
    layout.spans.forEach((span, node) => {
      const row = layout.rows[node];
      if (span <= row) return;
      setDefault<number, number[]>(tallNodes, Math.min(span, this.last[this.bandOf[row]]), () => []).push(node);
    });
    let along = 0;
    const head = this.trackCount[layout.rowCount] * metrics.track + metrics.arrow + metrics.gap;
    for (let row = 0; row < layout.rowCount; row++) {
      if (row && this.bandOf[row] !== this.bandOf[row - 1]) along = head + this.notes[row][0];
      this.rowStart.push(along);
      for (const node of tallNodes.get(row) ?? []) {
        const start = this.rowStart[layout.rows[node]];
        this.rows[row] = Math.max(this.rows[row], start + this.along[node] - along);
      }
      along += this.rows[row];
      this.totalAlong = Math.max(this.totalAlong, along);
      if (row < layout.rowCount - 1) {
        along += this.channel(row);
        this.totalAlong = Math.max(this.totalAlong, along);
      }
    }
  }

  // Coordinates

  /** Add the border and convert along and across into x and y. */
  finish(title: Title | null): Composed {
    const { layout, metrics, down } = this;
    const end = layout.entries + layout.children;
    let [acrossBefore, acrossAfter, alongBefore, alongAfter] = [0, 0, 0, 0];
    if (title) {
      const strip = metrics.title + (title.lines - 1) * metrics.line;
      acrossBefore = down ? metrics.pad : strip;
      alongBefore = down ? strip : metrics.pad;
      acrossAfter = alongAfter = metrics.pad;
    }
    if (title && down) {
      for (let node = 0; node < layout.entries; node++) {
        acrossBefore = Math.max(acrossBefore, title.width + 2 * metrics.pad - this.x(node, 0));
      }
    }
    let across = acrossBefore + this.totalAcross + acrossAfter;
    let along = alongBefore + this.totalAlong + alongAfter;
    if (title && down) across = Math.max(across, title.width + 2 * metrics.pad);
    else if (title) along = Math.max(along, title.width + 2 * metrics.pad);
    const lefts = this.boxes.map((_, node) => this.x(node, 0) + acrossBefore);
    const tops = layout.rows.map((row, node) => {
      if (node < layout.entries) return 0;
      if (node >= end) return along;
      const slack = layout.spans[node] === row ? this.rows[row] - this.along[node] : 0;
      return alongBefore + this.rowStart[row] + Math.max(0, slack) / 2;
    });
    const toPoint = (left: number, top: number): Point => (down ? [left, top] : [top, left]);
    return {
      box: plainBox(...toPoint(across, along), lefts.slice(0, layout.entries), lefts.slice(end)),
      places: lefts.slice(layout.entries, end).map((left, n) => toPoint(left, tops[layout.entries + n])),
      paths: layout.routes.map((route, n) =>
        simplify(this.path(route, this.runs[n], tops, acrossBefore, alongBefore), down),
      ),
      entries: this.entries.slice(layout.entries, end),
      exits: this.exits.slice(layout.entries, end),
      bands: this.bands,
    };
  }

  path(route: Route, runs: Run[], tops: number[], across: number, along: number): Point[] {
    const { source, target } = route;
    const from = this.x(source, this.exits[source][route.exit]) + across;
    const path: Point[] = [[from, tops[source] + this.along[source]]];
    for (const [channel, start, end] of runs) {
      if (start === end) continue;
      const trackAlong = along + this.trackAt(channel, route.net);
      path.push([start + across, trackAlong], [end + across, trackAlong]);
    }
    const end = this.targetX(route) + across;
    if (route.side) {
      const middle = tops[target] + this.along[target] / 2;
      path.push([path[path.length - 1][0], middle], [end, middle]);
    } else {
      path.push([end, tops[target]]);
    }
    return path;
  }

  trackAt(channel: number, net: number): number {
    const { metrics } = this;
    const track = this.trackOf[channel].get(net)!;
    if (channel === this.layout.rowCount) return metrics.gap + track * metrics.track;
    return this.rowStart[channel] + this.rows[channel] + this.notes[channel][1] + metrics.gap + track * metrics.track;
  }
}

/** Spread ports around the middle of a side. */
function spread(count: number, across: number, gap: number): number[] {
  const step = Math.min(gap, (across - 8) / Math.max(count - 1, 1));
  return Array.from({ length: count }, (_, n) => across / 2 + (n - (count - 1) / 2) * step);
}

/** Order the nets so that a net coming down at a position lies above those that continue down from there. */
function orderNets(nets: Map<number, Point>, above: Map<number, number>, below: Map<number, number[]>): number[] {
  const predecessors = new Map<number, number[]>();
  for (const [position, net] of above) {
    for (const lowerNet of below.get(position) ?? []) {
      if (lowerNet !== net) setDefault<number, number[]>(predecessors, lowerNet, () => []).push(net);
    }
  }
  const order = new Set<number>();
  const byStart = (first: number, second: number): number =>
    nets.get(first)![0] - nets.get(second)![0] || first - second;
  for (const net of [...nets.keys()].sort(byStart)) {
    const stack = [net];
    const pending = new Set<number>();
    while (stack.length) {
      const top = stack[stack.length - 1];
      const unordered = (predecessors.get(top) ?? []).find((n) => !order.has(n) && !pending.has(n));
      pending.add(top);
      if (unordered !== undefined) stack.push(unordered);
      else order.add(stack.pop()!);
    }
  }
  return [...order];
}

/** Assign nets, in order, to the first track that has no overlap on it or below it. */
function assignTracks(order: number[], nets: Map<number, Point>, spacing: number): [Map<number, number>, number] {
  const tracks: Point[][] = [];
  const trackOf = new Map<number, number>();
  for (const net of order) {
    const [low, high] = nets.get(net)!;
    let track = tracks.length;
    while (track > 0 && tracks[track - 1].every(([start, end]) => end + spacing <= low || high + spacing <= start))
      track--;
    if (track === tracks.length) tracks.push([]);
    tracks[track].push([low, high]);
    trackOf.set(net, track);
  }
  return [trackOf, tracks.length];
}

/** Drop repeated points and points on a straight line; return [x, y] pairs. */
function simplify(path: Point[], down: boolean): Point[] {
  const corners: Point[] = [];
  for (const [x, y] of path) {
    let last = corners[corners.length - 1];
    if (last && last[0] === x && last[1] === y) continue;
    while (corners.length > 1) {
      const previous = corners[corners.length - 2];
      last = corners[corners.length - 1];
      if (!((previous[0] === last[0] && last[0] === x) || (previous[1] === last[1] && last[1] === y))) break;
      corners.pop();
    }
    corners.push([x, y]);
  }
  return down ? corners : corners.map(([x, y]) => [y, x]);
}

function repeat<T>(value: T, count: number): T[] {
  return Array<T>(count).fill(value);
}

function largest(values: number[]): number {
  return values.length ? values.reduce((highest, value) => Math.max(highest, value)) : 0;
}

function setDefault<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}
