// What happens in one step: an operation runs, its rule runs, or a gradient has arrived at a leaf.
import type { ComponentChildren } from "preact";

import type { BackwardSteps, OpFacts, ReadFacts, Step } from "./backward_steps";
import { CheckView } from "./check_view";
import { FormulaView, showsSent, type Lookup } from "./formula_view";
import { shapeText, TensorView } from "./number_table";

/** Shows another step. */
export type Go = (place: number) => void;
type PanelProps = { steps: BackwardSteps; step: Step; op: OpFacts; go: Go };

const TITLES = { forward: "Forward", backward: "Backward", leaf: "Gradient" };

/** The panel of the current step. */
export function StepPanel({ steps, place, go }: { steps: BackwardSteps; place: number; go: Go }) {
  const step = steps.steps[place];
  const op = steps.op(step.op);
  const parts = { steps, step, op, go };
  const opposite = steps.opposite(place);
  return (
    <section class={`backward-panel ${step.phase}`} aria-label="Step" aria-live="polite">
      <header>
        <p class="backward-phase">{TITLES[step.phase]}</p>
        <h2>{step.phase === "leaf" ? `${op.label}.grad` : op.title || op.label}</h2>
        <p class="soft">{[op.module, op.source].filter(Boolean).join(" · ")}</p>
        {opposite >= 0 && (
          <button class="link" onClick={() => go(opposite)}>
            {step.phase === "forward" ? "its rule in backward →" : "← its operation in forward"}
          </button>
        )}
      </header>
      {step.phase === "forward" ? <Forward {...parts} /> : <Arrived {...parts} />}
      {step.phase === "backward" && <Rule {...parts} />}
      {step.phase === "leaf" && (
        <Part title="Its value">
          <TensorView tensor={op.value} />
        </Part>
      )}
      {step.phase === "leaf" && op.check && (
        <Part title="Numeric check of the whole gradient">
          <p class="soft">The forward pass again in double precision, with one number of {op.label} moved a little.</p>
          <CheckView check={op.check} of={op.gradient} name={`${op.label}.grad`} />
        </Part>
      )}
    </section>
  );
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="backward-part">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function Forward({ steps, step, op, go }: PanelProps) {
  const keptBy = keepers(steps, step.op);
  return (
    <>
      <Part title={op.reads?.length === 1 ? "Reads" : `Reads ${op.reads?.length ?? 0} values`}>
        {(op.reads ?? []).map((read, place) => (
          <Named key={place} name={read.argument} of={<OpLink steps={steps} op={read.op} go={go} phase="forward" />}>
            <TensorView tensor={steps.op(read.op).value} />
          </Named>
        ))}
      </Part>
      <Part title="Returns">
        <Named name="y" of={null}>
          <TensorView tensor={op.value} />
        </Named>
      </Part>
      <Part title="Kept for backward">
        <p>
          {keptBy.length ? (
            <>
              Its result is read again by {keptBy.length === 1 ? "the rule" : "the rules"} of{" "}
              <Links steps={steps} ops={keptBy} go={go} />.
            </>
          ) : (
            <span class="soft">No rule reads its result again, so it need not be kept.</span>
          )}
        </p>
      </Part>
    </>
  );
}

// The operations whose rules read a value: its own, and those that read it in forward.
function keepers(steps: BackwardSteps, index: number): number[] {
  const readers = steps.op(index).arrivals.map(([op]) => op);
  return [...new Set([index, ...readers])].filter((op) => steps.op(op).kept?.includes(index));
}

function Arrived({ steps, step, op, go }: PanelProps) {
  const { arrivals } = op;
  const sum = (
    <Named
      name={arrivals.length > 1 ? "=" : step.phase === "leaf" ? "grad" : "ȳ"}
      of={null}
      isSum={arrivals.length > 1}
    >
      <TensorView tensor={op.gradient} />
    </Named>
  );
  if (!arrivals.length) {
    const text = "Backward begins here: the loss moves one to one with itself.";
    return (
      <Part title="The first gradient">
        {op.gradient ? <p class="soft">{text}</p> : <p class="soft">One gradient for each of its results.</p>}
        {op.gradient && sum}
      </Part>
    );
  }
  const title = arrivals.length > 1 ? `${arrivals.length} gradients meet here` : "The gradient that arrived";
  return (
    <Part title={title}>
      {arrivals.length > 1 && (
        <p class="soft">
          {op.label} was used {arrivals.length === 2 ? "twice" : `${arrivals.length} times`}: each use moves the loss,
          and the moves add up.
        </p>
      )}
      <div class={arrivals.length > 1 ? "backward-sum" : ""}>
        {arrivals.slice(0, MAX_ARRIVALS).map((arrival, place) => (
          <Named
            key={place}
            name={arrivals.length > 1 ? (place ? "+" : " ") : "from"}
            of={<ArrivalLink steps={steps} arrival={arrival} go={go} />}
          >
            {arrivals.length > 1 ? <TensorView tensor={steps.sent(arrival)} /> : null}
          </Named>
        ))}
        {arrivals.length > MAX_ARRIVALS && (
          <p class="soft">and {(arrivals.length - MAX_ARRIVALS).toLocaleString("en")} more</p>
        )}
        {sum}
      </div>
      {op.hooked && <p class="soft">A hook changed the gradient as it passed: it is not the plain sum.</p>}
    </Part>
  );
}

const MAX_ARRIVALS = 30;

function Rule({ steps, op, step, go }: PanelProps) {
  const sent = (op.reads ?? []).filter((read) => read.sent);
  const checks = sent.filter((read) => read.check);
  const lookup: Lookup = (role, edge) => {
    if (role === "arrived") return op.gradient;
    if (role === "result") return op.value;
    const read = op.reads?.[edge];
    return role === "sent" ? (read?.sent ?? null) : read ? steps.op(read.op).value : null;
  };
  return (
    <>
      <Part title={op.borrowed ? "Its rule, borrowed from torch" : "Its rule"}>
        <FormulaView op={op} lookup={lookup} />
      </Part>
      <Part title="Why">
        {op.why && <p>{sentence(op.why)}</p>}
        <p class="soft">
          <Needs steps={steps} op={op} index={step.op} go={go} />
        </p>
      </Part>
      <Part title={sent.length === 1 ? "Sends one gradient on" : `Sends ${sent.length} gradients on`}>
        {sent.map((read, place) => (
          <Sent key={place} steps={steps} read={read} go={go} isShown={showsSent(op, op.reads!.indexOf(read))} />
        ))}
      </Part>
      {checks.length > 0 && (
        <Part title="Numeric check">
          {checks.map((read, place) => (
            <CheckView key={place} check={read.check!} of={read.sent} name={gradientName(steps, read)} />
          ))}
        </Part>
      )}
    </>
  );
}

function Needs({ steps, op, index, go }: { steps: BackwardSteps; op: OpFacts; index: number; go: Go }) {
  const kept = op.kept ?? [];
  if (!kept.length) return <>It needs no value of the forward pass, only the gradient that arrived and shapes.</>;
  const others = kept.filter((needed) => needed !== index);
  const own = kept.length > others.length;
  return (
    <>
      It needs {own && "its own result"}
      {own && others.length > 0 && " and "}
      {others.length > 0 && <Links steps={steps} ops={others} go={go} phase="forward" />}, kept from the forward pass.
    </>
  );
}

// What is sent where; its numbers unless the formula has shown them.
function Sent({ steps, read, go, isShown }: { steps: BackwardSteps; read: ReadFacts; go: Go; isShown: boolean }) {
  const target = steps.op(read.op);
  const meet = target.arrivals.length;
  return (
    <Named
      name={read.argument ? `${read.argument} →` : "→"}
      of={<OpLink steps={steps} op={read.op} go={go} phase="backward" />}
    >
      {read.before && (
        <p class="soft">
          summed over the copies of a broadcast value: {shapeText(read.before)} → {shapeText(read.sent?.shape ?? [])}
        </p>
      )}
      {meet > 1 && <p class="soft">one of {meet} that meet there</p>}
      {isShown ? (
        meet < 2 && !read.before && <span class="soft">{shapeText(read.sent?.shape ?? [])}</span>
      ) : (
        <TensorView tensor={read.sent} />
      )}
    </Named>
  );
}

/** A row: a name, what it belongs to, and a tensor. */
function Named({
  name,
  of,
  isSum = false,
  children,
}: {
  name: string;
  of: ComponentChildren;
  isSum?: boolean;
  children: ComponentChildren;
}) {
  return (
    <div class={`backward-row${isSum ? " total" : ""}`}>
      <span class="backward-name">
        {name && (name === "from" ? <span class="soft">from</span> : <var>{name}</var>)} {of}
      </span>
      <div class="backward-value">{children}</div>
    </div>
  );
}

function OpLink({ steps, op, go, phase }: { steps: BackwardSteps; op: number; go: Go; phase: "forward" | "backward" }) {
  const place = phase === "forward" ? steps.find("forward", op) : steps.findGradient(op);
  const { label } = steps.op(op);
  if (place < 0) return <span class="backward-op">{label}</span>;
  return (
    <button class="link backward-op" onClick={() => go(place)}>
      {label}
    </button>
  );
}

function ArrivalLink({ steps, arrival: [op, edge], go }: { steps: BackwardSteps; arrival: [number, number]; go: Go }) {
  const argument = steps.op(op).reads?.[edge]?.argument;
  return (
    <>
      <OpLink steps={steps} op={op} go={go} phase="backward" />
      {argument && <span class="soft"> ({argument})</span>}
    </>
  );
}

function Links({
  steps,
  ops,
  go,
  phase = "backward",
}: {
  steps: BackwardSteps;
  ops: number[];
  go: Go;
  phase?: "forward" | "backward";
}) {
  return (
    <>
      {ops.map((op, place) => (
        <>
          {place > 0 && ", "}
          <OpLink key={op} steps={steps} op={op} go={go} phase={phase} />
        </>
      ))}
    </>
  );
}

function gradientName(steps: BackwardSteps, read: ReadFacts): string {
  return `to ${steps.op(read.op).label}${read.argument ? ` (${read.argument})` : ""}`;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
