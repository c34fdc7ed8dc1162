// The slider of the Samples tab: one step for all samples, and for the network's recorded states.
import { useLivenessLabel } from "../shell/liveness";
import { useValue, type Store } from "../store";
import { indexOfStep, stepsOf } from "./sample_groups";

/** Go some steps on or back among those that have samples. */
export function moveStep(store: Store, count: number): void {
  const steps = stepsOf(store.samples.get());
  const index = indexOfStep(steps, store.sampleStep.get()) + count;
  if (steps.length) store.seekStep(steps[Math.max(0, Math.min(steps.length - 1, index))]);
}

/** The slider, with buttons for single steps and for the newest. */
export function StepBar({ store, steps }: { store: Store; steps: number[] }) {
  const step = useValue(store.sampleStep);
  const newestLabel = useLivenessLabel(store) === "Live" ? "Live" : "Newest";
  const index = indexOfStep(steps, step);
  const isNewest = step < 0;
  const label = `step ${steps[index].toLocaleString("en")}`;
  return (
    <div class="step-bar" role="group" aria-label="Step">
      <div class="joined">
        <button
          aria-label="1 step back"
          title="1 step back (,)"
          disabled={index <= 0}
          onClick={() => moveStep(store, -1)}
        >
          −1
        </button>
        <button
          aria-label="1 step on"
          title="1 step on (.)"
          disabled={isNewest || index >= steps.length - 1}
          onClick={() => moveStep(store, 1)}
        >
          +1
        </button>
      </div>
      <input
        id="sample-slider"
        type="range"
        aria-label="Step"
        aria-valuetext={label}
        min={0}
        max={Math.max(0, steps.length - 1)}
        step={1}
        value={index}
        disabled={steps.length < 2}
        onInput={({ currentTarget }) => store.seekStep(steps[Number(currentTarget.value)] ?? -1)}
      />
      <output class="when" aria-live="off">
        {label}{" "}
        <span class="soft">
          ({index + 1} of {steps.length.toLocaleString("en")})
        </span>
      </output>
      <button
        class={`live ${isNewest ? "on" : ""}`}
        aria-pressed={isNewest}
        title="Follow the newest samples (End)"
        onClick={() => store.seekStep(-1)}
      >
        <span class="dot" aria-hidden="true" /> {newestLabel}
      </button>
    </div>
  );
}
