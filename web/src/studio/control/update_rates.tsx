// Update rates: how often the network's state is recorded for the view, in training and in testing.
import type { Every } from "../messages";
import { useValue, type Store } from "../store";
import { pluralOf } from "./actions";

// `unit` is the loop's word for one step: "batch", or "trial" in eTorch's simulations.
const rateChoices = (unit: string): { value: string; title: string }[] => [
  { value: "auto", title: "automatic" },
  { value: "trial 1", title: unit },
  { value: "trial 10", title: `10 ${pluralOf(unit)}` },
  { value: "trial 100", title: `100 ${pluralOf(unit)}` },
  { value: "epoch 1", title: "epoch" },
  { value: "epoch 10", title: "10 epochs" },
  { value: "off", title: "off" },
];

/** Two choices; "automatic" takes at most 1% of the run's time. */
export function UpdateRates({ store }: { store: Store }) {
  const { train, test } = useValue(store.viewSettings);
  const choices = rateChoices(useValue(store.state).unit);
  return (
    <fieldset class="fields">
      <legend>View updates</legend>
      <RateChoice
        label="Train every"
        id="rate-train"
        choices={choices}
        every={train}
        set={(every) => store.viewSettings.patch({ train: every })}
      />
      <RateChoice
        label="Test every"
        id="rate-test"
        choices={choices}
        every={test}
        set={(every) => store.viewSettings.patch({ test: every })}
      />
    </fieldset>
  );
}

interface RateChoiceProps {
  label: string;
  id: string;
  choices: { value: string; title: string }[];
  every: Every;
  set: (every: Every) => void;
}

function RateChoice({ label, id, choices, every, set }: RateChoiceProps) {
  return (
    <div class="field" title="How often the view gets a new state. Automatic takes 1% of the time at most.">
      <label for={id}>{label}</label>
      <select id={id} value={formatRate(every)} onChange={({ currentTarget }) => set(parseRate(currentTarget.value))}>
        {choices.map(({ value, title }) => (
          <option key={value} value={value}>
            {title}
          </option>
        ))}
      </select>
    </div>
  );
}

function formatRate({ unit = "auto", count = 1 }: Every): string {
  return unit === "trial" || unit === "epoch" ? `${unit} ${count}` : unit;
}

function parseRate(text: string): Every {
  const [unit, count] = text.split(" ") as [Every["unit"], string?];
  return { unit, count: Number(count ?? 1) };
}
