// The slider over a pass: forward, then backward, then the gradients of the leaves.
import type { BackwardSteps, Phase } from "./backward_steps";

const WORDS: Record<Phase, string> = { forward: "forward", backward: "backward", leaf: "gradients" };

/** The slider, with buttons for single steps and for the beginning of each phase. */
export function StepSlider({ steps, place, go }: { steps: BackwardSteps; place: number; go: (place: number) => void }) {
  const last = steps.steps.length - 1;
  const text = placeText(steps, place);
  return (
    <div class="backward-bar" role="group" aria-label="Steps">
      <div class="joined">
        <button aria-label="First step" title="First step (Home)" disabled={place === 0} onClick={() => go(0)}>
          |◂
        </button>
        <button aria-label="1 step back" title="1 step back (←)" disabled={place === 0} onClick={() => go(place - 1)}>
          ◂
        </button>
        <button aria-label="1 step on" title="1 step on (→)" disabled={place === last} onClick={() => go(place + 1)}>
          ▸
        </button>
        <button aria-label="Last step" title="Last step (End)" disabled={place === last} onClick={() => go(last)}>
          ▸|
        </button>
      </div>
      <div class="backward-slider">
        <input
          id="backward-slider"
          type="range"
          aria-label="Step of the pass"
          aria-valuetext={text}
          min={0}
          max={last}
          step={1}
          value={place}
          onInput={({ currentTarget }) => go(Number(currentTarget.value))}
        />
        <div class="backward-phases">
          {steps.phases.map(({ phase, first, count }) => (
            <button
              key={phase}
              class={`quiet ${phase}`}
              aria-pressed={steps.steps[place].phase === phase}
              style={{ flexGrow: count }}
              title={`Go to the first of ${count.toLocaleString("en")} steps`}
              onClick={() => go(first)}
            >
              {WORDS[phase]}
            </button>
          ))}
        </div>
      </div>
      <output class="when" aria-live="off">
        {text}
      </output>
    </div>
  );
}

function placeText(steps: BackwardSteps, place: number): string {
  const { phase } = steps.steps[place];
  const { first, count } = steps.phases.find((part) => part.phase === phase)!;
  return `${WORDS[phase]} ${(place - first + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`;
}
