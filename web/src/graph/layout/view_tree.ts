// Which boxes are open, composed into views. A view is shared by all boxes that look the same, so unchanged boxes are
// never composed again.
import { compose, type Box, type Composed } from "./compose";
import type { Payload, Part, Plan, TitleText } from "../payload";

/** How a box is shown: folded, open, or only the last module of a stack. */
export type Mode = "folded" | "open" | "one";

/** A box as shown, without its position. */
export interface BoxView {
  id: number;
  name: string;
  part: Part;
  mode: Mode;
  fullPlan: Plan | null; // the plan of everything that can be opened here; null for an item
  plan: Plan | null; // the plan whose children are shown; null if folded
  title: TitleText | null; // the title of an open box
  children: BoxView[];
  composed: Composed | null;
  box: Box;
  boxCount: number; // number of visible leaves in it
  wrapCount: number; // number of cuts in long boxes inside it
}

type ModeRule = (plan: Plan, path: string, depth: number) => Mode;

export const ALL_LEVELS = 1e9;
const PAGE_SIZE = [1400, 900 - 80]; // the page size, in pixels, that a drawing is fitted to
const FULL_SCALE = 0.9;
const MAX_ASPECT = 2.5;
const MAX_REFITTED = 400; // boxes: with more, trying several limits takes too long
const MAX_SHARED_PARTS = 400; // parts: comparing a longer list costs more than sharing saves

export class ViewTree {
  root: BoxView;
  down: boolean;
  limit: number; // boxes longer than this are wrapped into bands
  private ids = 0;
  private viewCache = new Map<string, BoxView>();

  constructor(readonly data: Payload) {
    this.down = data.view.down;
    this.limit = data.view.limit;
    const openModes = new Map<string, Mode>();
    for (const path of data.view.open) openModes.set(path.replace("*", ""), path.endsWith("*") ? "one" : "open");
    this.root = this.build((_, path) => openModes.get(path) ?? "folded");
  }

  /** Set the mode of the box at a path, and open the boxes around it. */
  setMode(path: string, mode: Mode): void {
    this.root = this.withMode(this.root, path.split("/").map(Number), mode);
  }

  /** Open the boxes around a path. */
  reveal(path: string): void {
    const steps = path.split("/").map(Number);
    if (steps.length > 1) this.root = this.withMode(this.root, steps, "folded", true);
  }

  /** Open all boxes down to a level; stacks show one module, unless `all` is set. */
  unfold(level: number, all: boolean): void {
    const decide = levelRule(level, all);
    this.root = this.build(decide, (plan, depth) => `${plan} ${Math.min(depth, level + 1)}`);
    this.fit();
  }

  /** The number of boxes that `unfold` would show. */
  count(level: number, all: boolean): number {
    const decide = levelRule(level, all);
    const totals = new Map<string, number>();
    const count = (number: number, depth: number): number => {
      if (number < 0) return 1;
      const key = `${number} ${Math.min(depth, level + 1)}`;
      let total = totals.get(key);
      if (total === undefined) {
        const fullPlan = this.data.plans[number];
        const mode = decide(fullPlan, "", depth);
        const plan = this.planFor(fullPlan, mode);
        total = 1;
        if (mode !== "folded") {
          total = plan.parts.reduce((sum, part) => sum + count(part.plan, this.childDepth(plan, part, depth)), 0);
        }
        totals.set(key, total);
      }
      return total;
    };
    return count(this.data.root, 0);
  }

  /** The depth of the open boxes: 1 if all are folded. */
  level(): number {
    const depths = new Map<BoxView, number>();
    const depth = (view: BoxView): number => {
      let levels = depths.get(view);
      if (levels === undefined) {
        const below = view.children.reduce((most, child) => Math.max(most, depth(child)), 0);
        const isLevel = view.mode !== "folded" && view.plan!.sort !== "pill" && view.plan!.sort !== "stack";
        depths.set(view, (levels = below + Number(isLevel)));
      }
      return levels;
    };
    return depth(this.root);
  }

  /** The level at which only pills and the further modules of stacks are folded. */
  deepest(): number {
    const depths = new Map<number, number>();
    const depth = (number: number): number => {
      let levels = depths.get(number);
      if (levels === undefined) {
        const { sort, parts } = this.data.plans[number];
        const below = parts.reduce((most, part) => (part.plan < 0 ? most : Math.max(most, depth(part.plan))), 0);
        depths.set(number, (levels = below + Number(sort === "module" || sort === "function" || sort === "root")));
      }
      return levels;
    };
    return depth(this.data.root);
  }

  /** Rebuild the same open boxes with another direction or wrap limit. */
  setOrientation(down: boolean, limit: number): void {
    this.down = down;
    this.limit = limit;
    this.viewCache.clear();
    const rebuiltViews = new Map<BoxView, BoxView>();
    const rebuild = (view: BoxView): BoxView => {
      let rebuilt = rebuiltViews.get(view);
      if (!rebuilt) {
        rebuilt =
          view.mode === "folded"
            ? this.foldedView(view.name, view.part)
            : this.openView(view.name, view.part, view.mode, view.children.map(rebuild));
        rebuiltViews.set(view, rebuilt);
      }
      return rebuilt;
    };
    this.root = rebuild(this.root);
  }

  /** Compose anew after the sizes of boxes have changed; of many boxes the wrap limit stays. */
  resize(): void {
    if (this.root.boxCount <= MAX_REFITTED && this.limit !== Infinity) this.fit();
    else this.setOrientation(this.down, this.limit);
  }

  /** Choose the wrap limit that fills a page best (as `_fit` in picture.py). */
  fit(): void {
    this.setOrientation(this.down, Infinity);
    const edges = this.data.plans.reduce((most, plan) => Math.max(most, plan.layout.routes.length), 0);
    const count = Math.max(this.root.boxCount, Math.floor(edges / 3));
    const { width, height } = this.root.box;
    const ideal = Math.sqrt((width * height) / 1.5) * (this.down ? 1 : 1.5);
    const factors =
      count <= 400 ? [0.45, 0.6, 0.8, 1.0, 1.25, 1.6, 2.1] : count <= 3000 ? [0.8, 1.1, 1.5] : [1.1]; // prettier-ignore
    const limits = factors.map((factor) => Math.max(240, 20 * roundEven((ideal * factor) / 20)));
    let best = count <= 3000 ? { score: this.score(), limit: Infinity } : { score: -Infinity, limit: Infinity };
    for (const limit of new Set(limits)) {
      this.setOrientation(this.down, limit);
      const score = this.score();
      if (score > best.score + 1e-9) best = { score, limit };
    }
    if (this.limit !== best.limit) this.setOrientation(this.down, best.limit);
  }

  /** Score a layout: how large it can be shown, and how far its aspect is from a page's. */
  private score(): number {
    const { box, wrapCount } = this.root;
    const [width, height] = [Math.max(box.width, 1), Math.max(box.height, 1)];
    const aspect = width / height;
    const distortion = Math.max(aspect / 1.78, 1.2 / aspect, 1);
    const scale = Math.min(1, PAGE_SIZE[0] / width, PAGE_SIZE[1] / height);
    const penalty = 1 / MAX_ASPECT <= aspect && aspect <= MAX_ASPECT ? 0 : 0.3;
    return Math.min(scale / FULL_SCALE, 1) - 0.06 * (distortion - 1) - this.data.wrap_cost * wrapCount - penalty;
  }

  private build(decide: ModeRule, key?: (plan: number, depth: number) => string): BoxView {
    const views = new Map<string, BoxView>();
    const make = (name: string, part: Part, path: string, depth: number): BoxView => {
      if (part.plan < 0) return this.foldedView(name, part);
      const cacheKey = key && `${part.leaf} ${key(part.plan, depth)}`;
      const shared = cacheKey === undefined ? undefined : views.get(cacheKey);
      if (shared) return shared;
      const fullPlan = this.data.plans[part.plan];
      const mode = decide(fullPlan, path, depth);
      let view: BoxView;
      if (mode === "folded") {
        view = this.foldedView(name, part);
      } else {
        const plan = this.planFor(fullPlan, mode);
        const prefix = mode === "one" ? `${path}/${fullPlan.parts.length - 1}/` : path ? `${path}/` : "";
        const children = plan.parts.map((childPart, n) =>
          make(plan.names[n], childPart, prefix + n, this.childDepth(plan, childPart, depth)),
        );
        view = this.openView(name, part, mode, children);
      }
      if (cacheKey !== undefined) views.set(cacheKey, view);
      return view;
    };
    const root = this.data.plans[this.data.root];
    const part = { leaf: -1, plan: this.data.root, titles: [-1, -1] as [number, number] };
    const children = root.parts.map((childPart, n) => make(root.names[n], childPart, String(n), 1));
    return this.openView("", part, "open", children);
  }

  private withMode(view: BoxView, steps: number[], mode: Mode, onlyAround = false): BoxView {
    if (!steps.length) return onlyAround ? view : this.switchMode(view, mode);
    const fullPlan = view.fullPlan!;
    if (fullPlan.sort === "stack") {
      const last = fullPlan.parts.length - 1;
      if (view.mode === "folded") view = this.switchMode(view, steps[0] === last && steps.length > 1 ? "one" : "open");
      else if (view.mode === "one" && (steps[0] !== last || steps.length === 1)) view = this.switchMode(view, "open");
      if (view.mode === "one") steps = steps.slice(1);
    } else if (view.mode === "folded") {
      view = this.switchMode(view, "open");
    }
    const [index, ...innerSteps] = steps;
    const children = view.children.map((child, n) =>
      n === index ? this.withMode(child, innerSteps, mode, onlyAround) : child,
    );
    return this.openView(view.name, view.part, view.mode, children);
  }

  /** Switch a box to another mode; a stack keeps what is open in its last module. */
  private switchMode(view: BoxView, mode: Mode): BoxView {
    const { name, part, fullPlan } = view;
    if (mode === view.mode || !fullPlan) return view;
    if (mode === "folded") return this.foldedView(name, part);
    if (view.mode === "open" && view.children[view.children.length - 1].mode === "open") {
      return this.openView(name, part, mode, view.children[view.children.length - 1].children);
    }
    const plan = this.planFor(fullPlan, mode);
    const children = plan.parts.map((childPart, n) => this.foldedView(plan.names[n], childPart));
    if (view.mode === "one") {
      const last = plan.parts.length - 1;
      children[last] = this.openView(plan.names[last], plan.parts[last], "open", view.children);
    }
    return this.openView(name, part, mode, children);
  }

  private foldedView(name: string, part: Part): BoxView {
    return this.intern(`${part.leaf} ${part.plan}`, () => {
      const box = this.data.leaves[part.leaf].boxes[this.down ? 0 : 1];
      const fullPlan = part.plan < 0 ? null : this.data.plans[part.plan];
      return {
        name,
        part,
        mode: "folded",
        fullPlan,
        plan: null,
        title: null,
        children: [],
        composed: null,
        box,
        boxCount: 1,
        wrapCount: 0,
      };
    });
  }

  private openView(name: string, part: Part, mode: Mode, children: BoxView[]): BoxView {
    const isShared = children.length <= MAX_SHARED_PARTS;
    const key = isShared ? `${part.leaf} ${part.plan} ${mode} ${children.map((view) => view.id).join()}` : "";
    return this.intern(key, () => {
      const fullPlan = this.data.plans[part.plan];
      const plan = this.planFor(fullPlan, mode);
      const title = this.data.titles[part.titles[this.down ? 0 : 1]] ?? null;
      const titleSize = title && { width: title.width, lines: title.lines.length };
      const boxes = children.map((view) => view.box);
      const composed = compose(plan.layout, boxes, titleSize, this.down, this.limit, this.data.metrics);
      const boxCount = children.reduce((sum, view) => sum + view.boxCount, 0);
      const wrapCount = children.reduce((sum, view) => sum + view.wrapCount, composed.bands - 1);
      return { name, part, mode, fullPlan, plan, title, children, composed, box: composed.box, boxCount, wrapCount };
    });
  }

  private intern(key: string, make: () => Omit<BoxView, "id">): BoxView {
    let view = key ? this.viewCache.get(key) : undefined;
    if (!view) {
      view = { ...make(), id: this.ids++ };
      if (key) this.viewCache.set(key, view);
    }
    return view;
  }

  /** The plan drawn for an open box: in mode "one" the last module of a stack (gradients may not flow into the first). */
  private planFor(fullPlan: Plan, mode: Mode): Plan {
    return mode === "one" ? this.data.plans[fullPlan.parts[fullPlan.parts.length - 1].plan] : fullPlan;
  }

  /** Stacks and pills do not count as a level. */
  private childDepth(plan: Plan, part: Part, depth: number): number {
    return plan.sort === "stack" || (part.plan >= 0 && this.data.plans[part.plan].sort === "pill") ? depth : depth + 1;
  }
}

function levelRule(level: number, all: boolean): ModeRule {
  return (plan, _, depth) => {
    if (plan.sort === "root") return "open";
    if (plan.sort === "pill" ? !all : depth >= level) return "folded";
    return plan.sort === "stack" && !all ? "one" : "open";
  };
}

function roundEven(value: number): number {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}
