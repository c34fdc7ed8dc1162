// Rows of the panel, and links from step to step.
import type { ComponentChildren } from "preact";

import type { BackwardSteps } from "./backward_steps";

/** Shows another step. */
export type Go = (place: number) => void;

/** A row: a name, what it belongs to, and a tensor. */
export function Named({
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

/** The name of an op: a button that goes to its step, where it has one. */
export function OpLink({
  steps,
  op,
  go,
  phase,
}: {
  steps: BackwardSteps;
  op: number;
  go: Go;
  phase: "forward" | "backward";
}) {
  const place = phase === "forward" ? steps.find("forward", op) : steps.findGradient(op);
  const { label } = steps.op(op);
  if (place < 0) return <span class="backward-op">{label}</span>;
  return (
    <button class="link backward-op" onClick={() => go(place)}>
      {label}
    </button>
  );
}

/** Where a gradient came from: the op, and the argument of it. */
export function ArrivalLink({
  steps,
  arrival: [op, edge],
  go,
}: {
  steps: BackwardSteps;
  arrival: [number, number];
  go: Go;
}) {
  const argument = steps.op(op).reads?.[edge]?.argument;
  return (
    <>
      <OpLink steps={steps} op={op} go={go} phase="backward" />
      {argument && <span class="soft"> ({argument})</span>}
    </>
  );
}

/** Several ops. */
export function Links({
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
