// The steps of a forward and backward pass, as autograd/explanation/step_document.py writes them: a line with their order,
// then a line for each op, parsed when it is first shown.
import { unpack } from "../../graph/payload";
import { parseNumbers } from "../non_finite";

export type Phase = "forward" | "backward" | "leaf";

/** A tensor: all its numbers if they are few, else statistics; neither if its values are lost. */
export interface TensorFacts {
  shape: number[];
  type: string;
  numbers?: number[];
  minimum?: number;
  maximum?: number;
  mean?: number;
  std?: number;
  zeros?: number;
  nans?: number;
  infs?: number;
}

/** A piece of a formula: text, or a symbol and what it stands for: of a number itself, of a tensor an edge. */
export type FormulaPiece = string | [text: string, role: SymbolRole, of: number];
export type SymbolRole = "arrived" | "result" | "read" | "sent" | "number";

/** A gradient beside central differences; or why it was not checked. */
export interface CheckFacts {
  note?: string;
  rows?: [index: number[], byRule: number, byDifferences: number, error: number, isKink: boolean][];
  worst?: number;
  passed?: boolean;
}

/** Something that an operation read, and the gradient that its rule sent there. */
export interface ReadFacts {
  op: number;
  argument: string;
  sent: TensorFacts | null;
  before?: number[]; // the gradient's shape before it was summed over the copies of a broadcast value
  check?: CheckFacts;
}

/** An operation, a leaf or a constant. */
export interface OpFacts {
  label: string;
  kind: "op" | "parameter" | "constant";
  value: TensorFacts;
  gradient: TensorFacts | null;
  arrivals: [op: number, edge: number][]; // where its gradient comes from
  hooked?: boolean; // a hook changed the sum
  check?: CheckFacts; // of a leaf
  title?: string; // the following of operations only
  module?: string;
  source?: string;
  why?: string;
  borrowed?: boolean;
  kept?: number[]; // ops whose values its rule reads
  equations?: FormulaPiece[][];
  reads?: ReadFacts[];
}

/** One step. */
export interface Step {
  phase: Phase;
  op: number;
}

/** The steps of one phase. */
export interface PhaseRange {
  phase: Phase;
  first: number;
  count: number;
}

/** All steps of a pass. */
export class BackwardSteps {
  readonly steps: readonly Step[];
  readonly phases: readonly PhaseRange[];
  readonly loss: string;
  private readonly lines: string[];
  private readonly parsed = new Map<number, OpFacts>();
  private readonly places = new Map<string, number>();

  constructor(text: string) {
    const [head, ...lines] = text.split("\n");
    const { loss, steps } = JSON.parse(head) as { loss: string; steps: [Phase, number][] };
    this.loss = loss;
    this.steps = steps.map(([phase, op]) => ({ phase, op }));
    this.phases = phasesOf(this.steps);
    this.lines = lines;
    this.steps.forEach(({ phase, op }, place) => this.places.set(`${phase} ${op}`, place));
  }

  /** What is known of an op. */
  op(index: number): OpFacts {
    let facts = this.parsed.get(index);
    if (!facts) {
      facts = JSON.parse(this.lines[index], (_, value: unknown) => parseNumbers(value as never)) as OpFacts;
      this.parsed.set(index, facts);
    }
    return facts;
  }

  /** The number of a step; -1 if there is none. */
  find(phase: Phase, op: number): number {
    return this.places.get(`${phase} ${op}`) ?? -1;
  }

  /** The step in which an op gets its gradient: its rule's, or a leaf's. */
  findGradient(op: number): number {
    return Math.max(this.find("backward", op), this.find("leaf", op));
  }

  /** The step of the same op in the other direction. */
  opposite(place: number): number {
    const { phase, op } = this.steps[place];
    if (phase === "forward") return this.find("backward", op);
    return phase === "backward" ? this.find("forward", op) : -1;
  }

  /** The gradient that an op's rule sent along one of its edges. */
  sent([op, edge]: [number, number]): TensorFacts | null {
    return this.op(op).reads?.[edge]?.sent ?? null;
  }
}

function phasesOf(steps: readonly Step[]): PhaseRange[] {
  const order: Phase[] = ["forward", "backward", "leaf"];
  return order.flatMap((phase) => {
    const first = steps.findIndex((step) => step.phase === phase);
    const count = steps.filter((step) => step.phase === phase).length;
    return count ? [{ phase, first, count }] : [];
  });
}

/** Unpack an answer to `ask_backward`. */
export async function readSteps(bytes: Uint8Array): Promise<BackwardSteps> {
  return new BackwardSteps(await unpack(new Uint8Array(bytes)));
}
