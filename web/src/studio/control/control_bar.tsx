// The control bar: buttons that drive a run, and which page has control.
import { useLayoutEffect, useState } from "preact/hooks";

import type { Act } from "../messages";
import { Icon, type IconName } from "../shell/icons";
import { useValue, type Store } from "../store";
import { useTableOnly } from "../tables/table_chooser";
import { capitalized, clampInteger, isBusy, isPossible, pluralOf } from "./actions";

const MAX_STEPS = 1_000_000;
const HINTS: Record<string, string> = {
  // "batch": the word of the loop for one step, "trial" in eTorch's simulations
  init: "Begin anew: fresh weights, counters at zero",
  train: "Train until it is done or stopped (Space)",
  stop: "Stop after this step (Space)",
  step_trial: "Train one batch, then pause",
  step_epoch: "Train to the end of the epoch, then pause",
  step_n: "Train so many batches, then pause",
  step_run: "Train to the end of this run, then pause",
  test_trial: "Test the item after the one tested last",
  test_item: "Test one item",
  test_all: "Test all items",
  new_seed: "Another random seed for the next Init",
};

/** All buttons, or a sentence explaining why there are none. */
export function ControlBar({ store }: { store: Store }) {
  const state = useValue(store.state);
  const hello = useValue(store.hello);
  const tableOnly = useTableOnly(store);
  const report = useValue(store.report);
  if (!hello) return <div class="control" aria-label="Control" role="toolbar" />;
  if (!state.can.length) {
    return (
      <div class="control" role="toolbar" aria-label="Control">
        <span class="soft">
          {report
            ? "A report: what was recorded, to look at. It needs no connection."
            : tableOnly
              ? "A table: there is nothing to control, only to look at."
              : controlHint(hello.source, state.status)}
        </span>
      </div>
    );
  }
  return (
    <div class="control" role="toolbar" aria-label="Control">
      <Buttons store={store} />
      <Controller store={store} />
    </div>
  );
}

function controlHint(source: string, status: string): string {
  if (source === "live" && status === "failed") return "The run has failed; what was seen stays here.";
  if (source === "live" && status === "done") return "The run has ended; what was seen stays here.";
  if (source === "live" && status === "lost")
    return "The process is gone; what was seen stays here, and it is looked for.";
  if (source === "recording") return "A recording: there is nothing to control, only to look at.";
  if (source === "pass") return "A recorded forward pass: there is nothing to control, only to look at.";
  if (source === "comparison") return "Two side by side: there is nothing to control, only to look at.";
  if (source === "file") return "A model's file: its weights, and its graph where it has one. Nothing in it runs.";
  if (source === "run" && status === "running") return "This run is being written; its program has no buttons here.";
  if (source === "run") return "This run is not training now: there is nothing to control.";
  if (source === "nothing") return "Waiting for a network: run a forward pass, or start a training.";
  return "This network is only looked at: its own program decides when it runs.";
}

function Buttons({ store }: { store: Store }) {
  const { can, unit } = useValue(store.state);
  const has = (...names: string[]): boolean => names.some((name) => can.includes(name));
  return (
    <>
      <div class="group">
        <ActionButton store={store} action="init" icon="reset" label="Init" />
        <ActionButton store={store} action="train" icon="play" label="Train" primary />
        <ActionButton store={store} action="stop" icon="stop" label="Stop" />
      </div>
      {has("step_trial", "step_epoch", "step_run", "step_n") && (
        <div class="group" role="group" aria-label="Step">
          <span class="soft">Step</span>
          <ActionButton store={store} action="step_trial" label={capitalized(unit)} name={`Step ${unit}`} />
          <ActionButton store={store} action="step_epoch" label="Epoch" name="Step epoch" />
          <ActionButton store={store} action="step_run" label="Run" name="Step run" />
          {has("step_n") && <StepN store={store} />}
        </div>
      )}
      {has("test_trial", "test_item", "test_all") && (
        <div class="group" role="group" aria-label="Test">
          <span class="soft">Test</span>
          <ActionButton
            store={store}
            action="test_trial"
            label={unit === "trial" ? "Trial" : "Next"}
            name={unit === "trial" ? "Test trial" : "Test the next item"}
          />
          {has("test_item") && <TestItem store={store} />}
          <ActionButton store={store} action="test_all" label="All" name="Test all" />
        </div>
      )}
      <ActionButton store={store} action="new_seed" icon="dice" label="New seed" />
    </>
  );
}

interface ActionButtonProps {
  store: Store;
  action: Act["action"];
  label: string;
  name?: string;
  icon?: IconName;
  primary?: boolean;
  options?: { count?: number; item?: number };
}

function ActionButton({ store, action, label, name, icon, primary, options }: ActionButtonProps) {
  const possible = usePossible(store, action);
  const { can, unit } = useValue(store.state);
  if (!can.includes(action)) return null;
  return (
    <button
      class={primary ? "primary" : undefined}
      data-action={action}
      aria-label={name}
      title={HINTS[action].replace("batches", pluralOf(unit)).replace("batch", unit)}
      disabled={!possible}
      onClick={() => store.act(action, options)}
    >
      {icon && <Icon name={icon} />}
      {label}
    </button>
  );
}

function usePossible(store: Store, action: string): boolean {
  const connected = useValue(store.connection) === "open";
  return isPossible(action, useValue(store.state), useValue(store.controller), connected);
}

function StepN({ store }: { store: Store }) {
  const { step_n, unit } = useValue(store.state);
  const [count, setCount] = useState(step_n);
  useLayoutEffect(() => setCount(step_n), [step_n]); // in a layout effect: a later effect would overwrite what the user typed meanwhile
  return (
    <span class="joined">
      <ActionButton
        store={store}
        action="step_n"
        label="N"
        name={`Step ${count} ${pluralOf(unit)}`}
        options={{ count }}
      />
      <IntegerInput
        label={`How many ${pluralOf(unit)} to step`}
        value={count}
        minimum={1}
        maximum={MAX_STEPS}
        set={setCount}
      />
    </span>
  );
}

function TestItem({ store }: { store: Store }) {
  const { items } = useValue(store.state);
  const [item, setItem] = useState(0);
  const lastItem = items ? items - 1 : MAX_STEPS;
  useLayoutEffect(() => setItem((current) => Math.min(current, lastItem)), [lastItem]);
  return (
    <span class="joined">
      <ActionButton store={store} action="test_item" label="Item" name={`Test item ${item}`} options={{ item }} />
      <IntegerInput
        label={items ? `Which item to test, 0 to ${lastItem}` : "Which item to test"}
        value={item}
        minimum={0}
        maximum={lastItem}
        set={setItem}
      />
    </span>
  );
}

interface IntegerInputProps {
  label: string;
  value: number;
  minimum: number;
  maximum: number;
  set: (value: number) => void;
}

function IntegerInput({ label, value, minimum, maximum, set }: IntegerInputProps) {
  const [draft, setDraft] = useState<string | null>(null); // null: not being edited
  const commit = (): void => {
    if (draft !== null) set(clampInteger(draft, minimum, maximum));
    setDraft(null);
  };
  return (
    <input
      type="number"
      aria-label={label}
      title={label}
      min={minimum}
      max={maximum}
      step={1}
      value={draft ?? value}
      onInput={({ currentTarget }) => setDraft(currentTarget.value)}
      onBlur={commit}
      onKeyDown={({ key }) => (key === "Enter" ? commit() : key === "Escape" && setDraft(null))}
    />
  );
}

function Controller({ store }: { store: Store }) {
  const controller = useValue(store.controller);
  const connected = useValue(store.connection) === "open";
  if (!connected) return null;
  const take = (hasControl: boolean) => () => store.send({ kind: "control", take: hasControl });
  return (
    <div class="controller" role="status">
      {controller === "you" && (
        <>
          <span class="mine">You control</span>
          <button class="link" onClick={take(false)}>
            Give up
          </button>
        </>
      )}
      {controller === "other" && (
        <>
          <span>Another page controls</span>
          <button onClick={take(true)}>Take control</button>
        </>
      )}
      {controller === "nobody" && (
        <span class="soft" title="Who presses a button first controls the run">
          Nobody controls
        </span>
      )}
    </div>
  );
}

/** The space bar: train if the run is paused, stop if it is busy. */
export function trainOrStop(store: Store): void {
  const state = store.state.get();
  const action = isBusy(state) ? "stop" : "train";
  if (isPossible(action, state, store.controller.get(), store.connection.get() === "open")) store.act(action);
}
