// The toolbar above the view: variable, item, mode, range and colours.
import { useState } from "preact/hooks";
import { Icon } from "../../shell/icons";
import { useValue } from "../../store";
import type { NetworkPresenter } from "../presenter";
import { ColourBy } from "./colour_by";
import { CameraButtons } from "./camera_buttons";
import { findColourMap, COLOUR_MAPS } from "../values/colour_maps";
import { pngOf } from "../picture_export";
import type { RangeMode } from "../values/value_ranges";

const VIEW_MODES = [
  { value: "auto", title: "Auto", doc: "Bars up to 20,000 units, cells above" },
  { value: "bars", title: "Bars", doc: "Each unit a bar, as high as its value" },
  { value: "cells", title: "Cells", doc: "Each unit a flat cell" },
  { value: "raster", title: "Raster", doc: "Units against time: each column is a moment" },
];

const RANGE_MODES: { value: RangeMode; title: string }[] = [
  { value: "layer", title: "each layer" },
  { value: "auto", title: "automatic" },
  { value: "percentile", title: "percentile" },
  { value: "fixed", title: "fixed" },
];

/** The controls above the view. */
export function NetworkToolbar({ presenter }: { presenter: NetworkPresenter }) {
  return (
    <div class="network-tools" role="toolbar" aria-label="Network view">
      <VariableGroup presenter={presenter} />
      <ColourBy presenter={presenter} />
      <ModeGroup presenter={presenter} />
      <RangeGroup presenter={presenter} />
    </div>
  );
}

/** The controls that lie over the view. */
export function StageTools({ presenter }: { presenter: NetworkPresenter }) {
  return (
    <div class="network-over" role="toolbar" aria-label="Picture">
      <AppearanceGroup presenter={presenter} />
      <CameraButtons presenter={presenter} />
    </div>
  );
}

function VariableGroup({ presenter }: { presenter: NetworkPresenter }) {
  const net = useValue(presenter.store.net);
  const { variable, item } = useValue(presenter.store.viewSettings);
  const { batch } = useValue(presenter.store.state);
  const current = net?.variables.find(({ name }) => name === variable);
  const options = (of: string) =>
    (net?.variables ?? []).filter((candidate) => (candidate.of === "weight") === (of === "weight")).map(({ name, doc }) => (
      <option key={name} value={name} title={doc}>
        {name}
      </option>
    )); // prettier-ignore
  return (
    <div class="group">
      <label title={current?.doc}>
        <span>Variable</span>
        <select
          id="network-variable"
          value={variable}
          disabled={!net}
          onChange={({ currentTarget }) => presenter.store.viewSettings.patch({ variable: currentTarget.value })}
        >
          <optgroup label="of units">{options("unit")}</optgroup>
          {net?.variables.some(({ of }) => of === "weight") && (
            <optgroup label="weights of the clicked unit">{options("weight")}</optgroup>
          )}
        </select>
      </label>
      <label title={batch ? `Which of the ${batch} items of a batch` : "Which item of a batch"}>
        <span>Item</span>
        <NumberInput
          id="network-item"
          value={item}
          minimum={0}
          maximum={batch > 0 ? batch - 1 : 1e6}
          isInteger
          set={(value) => presenter.store.viewSettings.patch({ item: value })}
        />
      </label>
    </div>
  );
}

function ModeGroup({ presenter }: { presenter: NetworkPresenter }) {
  const { mode, raster } = useValue(presenter.store.viewSettings);
  const { rasterLength } = useValue(presenter.settings);
  const modes = presenter.webgl ? VIEW_MODES : VIEW_MODES.filter(({ value }) => value !== "bars"); // flat cells have no height
  const choose = (value: string): void =>
    presenter.store.viewSettings.patch({ mode: value, raster: value === "raster" ? rasterLength : 0 });
  return (
    <div class="group">
      <div
        class="joined"
        role="radiogroup"
        aria-label="Mode"
        onKeyDown={(event) => walkModes(event, modes, mode, choose)}
      >
        {modes.map(({ value, title, doc }) => (
          <button
            key={value}
            role="radio"
            aria-checked={mode === value}
            tabIndex={mode === value ? 0 : -1}
            title={doc}
            onClick={() => choose(value)}
          >
            {title}
          </button>
        ))}
      </div>
      {raster > 0 && (
        <label title="How many moments the raster shows">
          <span>Moments</span>
          <NumberInput
            id="network-raster"
            value={rasterLength}
            minimum={2}
            maximum={1000}
            isInteger
            set={(value) => {
              presenter.settings.patch({ rasterLength: value });
              presenter.store.viewSettings.patch({ raster: value });
            }}
          />
        </label>
      )}
    </div>
  );
}

// Arrow keys move to the next mode and choose it, as in any radio group.
function walkModes(
  event: KeyboardEvent,
  modes: typeof VIEW_MODES,
  mode: string,
  choose: (value: string) => void,
): void {
  const step = ["ArrowRight", "ArrowDown"].includes(event.key)
    ? 1
    : ["ArrowLeft", "ArrowUp"].includes(event.key)
      ? -1
      : 0;
  if (!step || !(event.currentTarget instanceof HTMLElement)) return;
  event.preventDefault();
  const index = (modes.findIndex(({ value }) => value === mode) + step + modes.length) % modes.length;
  choose(modes[index].value);
  event.currentTarget.querySelectorAll("button")[index].focus();
}

function RangeGroup({ presenter }: { presenter: NetworkPresenter }) {
  useValue(presenter.settings);
  useValue(presenter.store.viewSettings);
  useValue(presenter.store.net);
  const range = presenter.range();
  return (
    <div class="group" role="group" aria-label="Range and colours">
      <label title="From which to which value the colours go">
        <span>Range</span>
        <select
          id="network-range"
          value={range.mode}
          onChange={({ currentTarget }) => presenter.setRange({ mode: currentTarget.value as RangeMode })}
        >
          {RANGE_MODES.map(({ value, title }) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      </label>
      {range.mode === "fixed" && (
        <>
          <NumberInput
            id="network-min"
            label="Least value"
            value={range.min}
            set={(min) => presenter.setRange({ min })}
          />
          <span class="soft">to</span>
          <NumberInput
            id="network-max"
            label="Largest value"
            value={range.max}
            set={(max) => presenter.setRange({ max })}
          />
        </>
      )}
      {range.mode === "percentile" && (
        <label title="So much of the values lies inside the range">
          <NumberInput
            id="network-percent"
            label="Percent inside"
            value={range.percent}
            minimum={1}
            maximum={100}
            set={(percent) => presenter.setRange({ percent })}
          />
          <span>%</span>
        </label>
      )}
      <label class="check" title="Zero is the middle of the colours">
        <input
          id="network-zero"
          type="checkbox"
          checked={range.zeroCentred}
          onChange={({ currentTarget }) => presenter.setRange({ zeroCentred: currentTarget.checked })}
        />
        <span>zero-centred</span>
      </label>
      <label title="Range and colours are kept for each variable">
        <span>Colours</span>
        <select
          id="network-map"
          value={findColourMap(range.map).name}
          onChange={({ currentTarget }) => presenter.setRange({ map: currentTarget.value })}
        >
          {COLOUR_MAPS.map(({ name, title }) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

function AppearanceGroup({ presenter }: { presenter: NetworkPresenter }) {
  const { labels, arrows, height, lean } = useValue(presenter.settings);
  return (
    <div class="group">
      {presenter.webgl && (
        <label title="How high bars are">
          <span>Height</span>
          <input
            id="network-height"
            type="range"
            min="0.2"
            max="2.5"
            step="0.1"
            value={height}
            aria-valuetext={`${height} times`}
            onInput={({ currentTarget }) => presenter.settings.patch({ height: Number(currentTarget.value) })}
          />
        </label>
      )}
      <button
        class="toggle"
        aria-pressed={labels}
        title="Names of the layers (L)"
        onClick={() => presenter.settings.patch({ labels: !labels })}
      >
        Labels
      </button>
      {presenter.webgl && (
        <>
          <button
            class="toggle"
            aria-pressed={arrows}
            title="Arrows between the layers (A)"
            onClick={() => presenter.settings.patch({ arrows: !arrows })}
          >
            Arrows
          </button>
          <button
            class="toggle"
            aria-pressed={lean}
            title="A stack of layers leans to fill the window"
            onClick={() => presenter.settings.patch({ lean: !lean })}
          >
            Lean
          </button>
        </>
      )}
      <button aria-label="Save picture as PNG" title="Save picture as PNG" onClick={() => void savePicture(presenter)}>
        <Icon name="down" /> PNG
      </button>
    </div>
  );
}

async function savePicture(presenter: NetworkPresenter): Promise<void> {
  const blob = await pngOf(presenter);
  if (!blob) return presenter.store.notice("This browser could not make a picture.");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  const { variable, moment } = presenter.displayed.get();
  const name = [presenter.store.net.get()?.name || "network", variable, moment >= 0 ? String(moment) : ""];
  link.download = `${name
    .filter(Boolean)
    .join("-")
    .replace(/[^\w.-]+/g, "_")}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // not before the download has started
}

interface NumberInputProps {
  id: string;
  value: number;
  set: (value: number) => void;
  label?: string;
  minimum?: number;
  maximum?: number;
  isInteger?: boolean;
}

/** A number field: commits on Enter or blur, and keeps the old value if the text is not a number. */
export function NumberInput({
  id,
  value,
  set,
  label,
  minimum = -Infinity,
  maximum = Infinity,
  isInteger = false,
}: NumberInputProps) {
  const [draft, setDraft] = useState<string | null>(null);
  const commit = (text: string): void => {
    setDraft(null);
    const number = Number(text.replace(",", "."));
    if (!text.trim() || !Number.isFinite(number)) return;
    const clamped = Math.max(minimum, Math.min(maximum, isInteger ? Math.round(number) : number));
    if (clamped !== value) set(clamped);
  };
  const step = (amount: number): void => commit(String(value + amount));
  return (
    <input
      id={id}
      class="number"
      inputMode="decimal"
      role={isInteger ? "spinbutton" : undefined}
      aria-valuenow={isInteger ? value : undefined}
      aria-label={label}
      autocomplete="off"
      value={draft ?? String(value)}
      onInput={({ currentTarget }) => setDraft(currentTarget.value)}
      onBlur={({ currentTarget }) => draft !== null && commit(currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === "Enter") commit(event.currentTarget.value);
        if (event.key === "Escape") setDraft(null);
        if (isInteger && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
          event.preventDefault();
          step(event.key === "ArrowUp" ? 1 : -1);
        }
      }}
    />
  );
}
