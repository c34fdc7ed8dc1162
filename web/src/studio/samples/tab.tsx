// The Samples tab: images, sound, text, tables and confusion matrices that were logged, at one step.
import { useEffect } from "preact/hooks";

import { addKeyBindings } from "../key_bindings";
import { useValue, type Store } from "../store";
import { SampleCard } from "./sample_card";
import { forgetContent } from "./sample_content";
import { groupsAt, indexOfStep, stepsOf } from "./sample_groups";
import { moveStep, StepBar } from "./step_bar";

/** A card for each name, and one slider for all of them. */
export function SamplesTab({ store }: { store: Store }) {
  const samples = useValue(store.samples);
  const step = useValue(store.sampleStep);
  const hello = useValue(store.hello);
  useEffect(forgetContent, [hello]);
  useEffect(
    () =>
      addKeyBindings([
        { key: ",", tab: "samples", description: "One step back", run: () => moveStep(store, -1) },
        { key: ".", tab: "samples", description: "One step on", run: () => moveStep(store, 1) },
        {
          key: "Home",
          tab: "samples",
          description: "The first step",
          run: () => store.seekStep(stepsOf(store.samples.get())[0] ?? -1),
        },
        { key: "End", tab: "samples", description: "The newest", run: () => store.seekStep(-1) },
      ]),
    [],
  );
  if (!samples.length) return <NoSamples isLoaded={hello !== null} />;
  const steps = stepsOf(samples);
  const shownStep = steps[indexOfStep(steps, step)];
  const groups = groupsAt(samples, step < 0 ? -1 : shownStep);
  return (
    <div class="samples-tab">
      <StepBar store={store} steps={steps} />
      <div class="sample-cards">
        {groups.map((group) => (
          <SampleCard key={group.key} store={store} group={group} shownStep={shownStep} />
        ))}
      </div>
    </div>
  );
}

function NoSamples({ isLoaded }: { isLoaded: boolean }) {
  if (!isLoaded) return <p class="empty">Loading…</p>;
  return (
    <p class="empty">
      Nothing was logged beside numbers yet: <code>log(image=x, text=answer)</code> of <code>tl.live</code> and{" "}
      <code>tl.watch</code> brings images, sound, text, tables and confusion matrices here.
    </p>
  );
}
