// Choose what to compare: a checkpoint of each of two runs, or two of one run.
import { useState } from "preact/hooks";

import { useAnswer } from "../inspector/tensor_queries";
import type { Json } from "../messages";
import { Dialog } from "../shell/dialog";
import type { Store } from "../store";

interface Checkpoint {
  step: number;
  best: boolean;
  nan: boolean;
}

/** What can be compared of a run. */
export interface Comparable {
  run: number;
  name: string;
  pass: boolean; // a recorded pass, which is compared as a whole
  checkpoints: Checkpoint[];
}

/** The steps to begin with: the newest of two runs, the oldest and the newest of one; -1 without a checkpoint. */
export function firstSteps([first, second]: [Comparable, Comparable]): [number, number] {
  const newest = ({ checkpoints }: Comparable): number => checkpoints[checkpoints.length - 1]?.step ?? -1;
  return [first.run === second.run ? (first.checkpoints[0]?.step ?? -1) : newest(first), newest(second)];
}

/** Why two runs cannot be compared; "" if they can. */
export function whyNot([first, second]: [Comparable, Comparable]): string {
  if (first.pass && second.pass && first.run !== second.run) return "";
  if (first.pass !== second.pass) return "One is a recorded pass and the other is not: two of a kind are compared.";
  const bare = [first, second].find(({ checkpoints }) => !checkpoints.length);
  if (bare) return `${bare.name} has no checkpoints: checkpoint_steps in its config says how often one is saved.`;
  return first.run === second.run && first.checkpoints.length < 2 ? `${first.name} has one checkpoint only.` : "";
}

/** The dialog for one or two runs. */
export function CompareDialog({ store, ids, close }: { store: Store; ids: number[]; close: () => void }) {
  const asked = useAnswer(ids, async (runs) => parsed(await store.ask({ kind: "ask_checkpoints", runs })), null);
  return (
    <Dialog title="Compare" close={close}>
      {asked?.value ? (
        <Sides store={store} sides={asked.value} close={close} />
      ) : (
        <p class="soft">{asked?.problem || "Reading…"}</p>
      )}
    </Dialog>
  );
}

function parsed(answer: Json): [Comparable, Comparable] {
  const runs = answer as unknown as Comparable[];
  return [runs[0], runs[1] ?? runs[0]];
}

function Sides({ store, sides, close }: { store: Store; sides: [Comparable, Comparable]; close: () => void }) {
  const [steps, setSteps] = useState(() => firstSteps(sides));
  const reason = whyNot(sides);
  const isSame = sides[0].run === sides[1].run && steps[0] === steps[1];
  const compare = (event: Event): void => {
    event.preventDefault();
    const [first, second] = sides.map(({ run }) => run);
    if (store.send({ kind: "open_comparison", first, second, first_step: steps[0], second_step: steps[1] }))
      store.tab.set("compare");
    close();
  };
  return (
    <form class="lines" onSubmit={compare}>
      <div class="compare-sides">
        {(["First", "Second"] as const).map((title, side) => (
          <fieldset key={title}>
            <legend title={sides[side].name}>
              {title}: {sides[side].name}
            </legend>
            <CheckpointSelect
              label={`Checkpoint of the ${title.toLowerCase()}`}
              side={sides[side]}
              step={steps[side]}
              choose={(step) => setSteps(side ? [steps[0], step] : [step, steps[1]])}
            />
          </fieldset>
        ))}
      </div>
      {reason && <p class="wrong">{reason}</p>}
      {!reason && isSame && <p class="soft">Choose two different steps.</p>}
      <div class="row end">
        <button type="submit" class="primary" disabled={!!reason || isSame}>
          Compare
        </button>
      </div>
    </form>
  );
}

interface CheckpointSelectProps {
  label: string;
  side: Comparable;
  step: number;
  choose: (step: number) => void;
}

function CheckpointSelect({ label, side: { pass, checkpoints }, step, choose }: CheckpointSelectProps) {
  if (pass) return <p class="soft">a recorded pass</p>;
  if (!checkpoints.length) return <p class="soft">no checkpoints</p>;
  return (
    <select
      aria-label={label}
      value={String(step)}
      onChange={({ currentTarget }) => choose(Number(currentTarget.value))}
    >
      {[...checkpoints].reverse().map((checkpoint, place) => (
        <option key={checkpoint.step} value={String(checkpoint.step)}>
          {[
            `step ${checkpoint.step.toLocaleString("en")}`,
            place ? "" : "latest",
            checkpoint.best ? "best" : "",
            checkpoint.nan ? "has NaN" : "",
          ]
            .filter(Boolean)
            .join(" · ")}
        </option>
      ))}
    </select>
  );
}
