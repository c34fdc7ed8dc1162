// The inspector of a layer: any of its tensors as a picture, with exact numbers, statistics and code.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Layer, LayerTensors, TensorHead } from "../messages";
import type { NetworkPresenter } from "../network/presenter";
import { buildRamp, findColourMap } from "../network/values/colour_maps";
import { layerSetting } from "../network/values/value_ranges";
import { formatNumber } from "../tables/value_format";
import { useValue } from "../store";
import { AxisControls } from "./axis_controls";
import * as axes from "./axis_choice";
import { chosenTensor, isWide, partOf, pickTensor, useInspectedLayer } from "./inspector_state";
import { NumpyCode } from "./numpy_code";
import { OverTime } from "./over_time";
import type { BlockCell, SliceBlock } from "./slice_block";
import { TensorFacts } from "./tensor_facts";
import { colourRange, TensorPicture, type Colours } from "./tensor_picture";
import { askSlice, askStatistics, askTensors, useAnswer } from "./tensor_queries";

const [CELLS, WIDE_CELLS] = [1 << 15, 1 << 17]; // asked for at most

/** The sections of the selected layer; nothing without one. */
export function LayerInspector({ presenter }: { presenter: NetworkPresenter }) {
  const { store } = presenter;
  const layer = useInspectedLayer(store);
  const { moment } = useValue(store.viewSettings);
  const source = useValue(store.hello)?.title ?? "";
  const question = layer && { layer: layer.name, moment, source };
  const follows = moment < 0 ? store.moments : null; // only who looks at the newest state is told of the next
  const asked = useAnswer(question, (place) => askTensors(store, place.layer, place.moment), follows);
  if (!layer || !asked) return null;
  const isOther = asked.question.layer !== layer.name;
  if (asked.problem || !asked.value || isOther)
    return <p class="soft tensor-empty">{isOther ? "Loading…" : asked.problem}</p>;
  return <Tensors key={`${source} ${layer.name}`} presenter={presenter} layer={layer} tensors={asked.value} />;
}

type TensorPlace = Pick<TensorHead, "variable" | "parameter">;
type Role = (typeof axes.ROLES)[number];

interface TensorsProps {
  presenter: NetworkPresenter;
  layer: Layer;
  tensors: LayerTensors;
}

function Tensors({ presenter, layer, tensors }: TensorsProps) {
  const { store } = presenter;
  const { variable } = useValue(store.viewSettings);
  const chosen = useValue(chosenTensor);
  const head = pickTensor(tensors.tensors, chosen, variable);
  const also = head && !head.parameter && head.variable !== variable ? head.variable : "";
  const parameters = !!head?.parameter;
  useEffect(() => {
    const shown = { layer: layer.name, parameters, also };
    store.inspected.set(shown); // a live run sends it from its next step on
    return () => {
      if (store.inspected.get() === shown) store.inspected.set(null); // the panel of another tab may be there already
    };
  }, [layer.name, parameters, also]);
  if (!head) return null;
  return (
    <div class="tensors">
      <TensorSelect tensors={tensors.tensors} head={head} />
      {head.why ? (
        <p class="tensor-why">
          {titleOf(head)} is not there: {head.why}.
        </p>
      ) : (
        <TensorView presenter={presenter} layer={layer} tensors={tensors} head={head} />
      )}
      <OverTime store={store} layer={layer} head={head} />
    </div>
  );
}

/** A tensor's name for people. */
export function titleOf({ variable, parameter }: TensorHead): string {
  if (!parameter) return variable;
  return variable === "WtGrad" ? `${parameter}, gradient` : parameter;
}

function TensorSelect({ tensors, head }: { tensors: TensorHead[]; head: TensorHead }) {
  const option = (each: TensorHead) => (
    <option key={tensors.indexOf(each)} value={tensors.indexOf(each)}>
      {titleOf(each)}
      {each.why ? " (not there)" : ""}
    </option>
  );
  const [values, parameters] = [tensors.filter((each) => !each.parameter), tensors.filter((each) => each.parameter)];
  return (
    <div class="tensor-select">
      <select
        aria-label="Tensor"
        value={tensors.indexOf(head)}
        onChange={({ currentTarget }) => {
          const next = tensors[Number(currentTarget.value)];
          chosenTensor.set({ variable: next.variable, part: partOf(next) });
        }}
      >
        <optgroup label="Values">{values.map(option)}</optgroup>
        {parameters.length > 0 && <optgroup label="Parameters">{parameters.map(option)}</optgroup>}
      </select>
      {!head.why && (
        <span class="soft" title={head.doc}>
          {head.type} · {head.shape.join(" × ") || "a single number"}
        </span>
      )}
    </div>
  );
}

// -- a tensor that is there --------------------------------------------------------------------------------------------

function TensorView({ presenter, layer, tensors, head }: TensorsProps & { head: TensorHead }) {
  const { store } = presenter;
  const wide = useValue(isWide);
  const settings = useValue(store.viewSettings);
  const [choice, setChoice] = useChoice(head, settings.item);
  const [eachTile, setEachTile] = useState(false);
  const place = { layer: layer.name, variable: head.variable, parameter: head.parameter, moment: tensors.moment };
  const question = { ...place, ...axes.sliceQuestion(choice, wide ? WIDE_CELLS : CELLS) };
  const sliced = useAnswer(question, (asked) => askSlice(store, asked), null);
  const summed = useAnswer(place, (asked) => askStatistics(store, asked), null);
  const chosen = presenter.range();
  const setting = layerSetting(chosen, layer, head.parameter ? "" : head.variable);
  const zeroCentred = setting.zeroCentred && head.type !== "bool";
  const range: [number, number] | null = setting === chosen ? null : [setting.min, setting.max];
  const colours: Colours = { map: setting.map, zeroCentred, eachTile, range };
  const block = sliced?.value && isOf(sliced.question, place, choice) ? sliced.value : null;
  return (
    <>
      <BatchNote head={head} />
      <AxisControls head={head} choice={choice} onChoice={setChoice} />
      {sliced?.problem && <p class="tensor-why">{sliced.problem}</p>}
      <Zoomed head={head} choice={choice} setChoice={setChoice} />
      {block && (
        <>
          <TensorPicture
            {...{ head, choice, block, colours, wide }}
            names={presenter.store.net.get()?.token_names}
            label={`${titleOf(head)} of ${layer.name}, ${block.head.shape.join(" × ")} cells`}
            onEnter={(cell) => enter(presenter, layer, head, choice, block, cell, setChoice)}
            onLeave={() => setChoice(left(head, choice))}
          />
          <ColourScale block={block} colours={colours} setEachTile={setEachTile} />
        </>
      )}
      {summed?.value && isSame(summed.question, place) && (
        <TensorFacts
          head={head}
          facts={summed.value}
          onUnit={(axis, unit) => setChoice(axes.withPosition(axes.withRole(choice, axis, "slider"), axis, unit))}
        />
      )}
      {block && <NumpyCode store={store} head={block.head} />}
    </>
  );
}

// A block of other axes would be read wrongly; one of another moment or slider is right until the next one comes.
function isOf(
  question: TensorPlace & Pick<axes.AxisChoice, Role>,
  place: TensorPlace,
  choice: axes.AxisChoice,
): boolean {
  return isSame(question, place) && axes.ROLES.every((role) => question[role] === choice[role]);
}

function isSame(question: TensorPlace, place: TensorPlace): boolean {
  return question.variable === place.variable && question.parameter === place.parameter;
}

// The axes stay as they were chosen while one goes from tensor to tensor of the same kind, and from moment to moment.
function useChoice(head: TensorHead, item: number): [axes.AxisChoice, (choice: axes.AxisChoice) => void] {
  const kept = useRef({ head, choice: axes.firstChoice(head, item), item });
  const [, redraw] = useState(0);
  if (kept.current.head !== head) {
    kept.current = { ...kept.current, head, choice: axes.adaptedChoice(kept.current.choice, kept.current.head, head, item) }; // prettier-ignore
  }
  const set = (choice: axes.AxisChoice): void => {
    kept.current = { ...kept.current, choice };
    redraw((count) => count + 1);
  };
  useEffect(() => {
    if (kept.current.item === item) return;
    kept.current.item = item; // the toolbar's batch item moves the slider of the batch
    if (head.first >= 0) set(axes.withPosition(kept.current.choice, 0, axes.firstChoice(head, item).index[0]));
  }, [item]);
  return [kept.current.choice, set];
}

function BatchNote({ head }: { head: TensorHead }) {
  if (head.first < 0 || !head.items || !head.shape.length || head.shape[0] >= head.items) return null;
  return (
    <p class="soft">
      Items {head.first} to {head.first + head.shape[0] - 1} of {head.items} are kept.
    </p>
  );
}

function Zoomed({ head, choice, setChoice }: { head: TensorHead; choice: axes.AxisChoice; setChoice: (choice: axes.AxisChoice) => void }) {
  const isAlone = choice.tiles < 0 && head.tiles >= 0 && axes.roleOf(choice, head.tiles) === "slider";
  if (!choice.zoom && !isAlone) return null;
  const { zoom } = choice;
  return (
    <p class="tensor-zoom">
      <button class="quiet" onClick={() => setChoice(left(head, choice))}>
        {zoom ? "Show the whole" : `All ${head.axes[head.tiles]}s`}
      </button>
      {zoom && (
        <span class="soft">
          rows {zoom.rows.first}–{zoom.rows.last}, columns {zoom.columns.first}–{zoom.columns.last}
        </span>
      )}
    </p>
  );
} // prettier-ignore

// One level out: from a part to the whole, from one tile to all.
function left(head: TensorHead, choice: axes.AxisChoice): axes.AxisChoice {
  if (choice.zoom) return { ...choice, zoom: null };
  const isAlone = choice.tiles < 0 && head.tiles >= 0 && axes.roleOf(choice, head.tiles) === "slider";
  return isAlone ? axes.withRole(choice, head.tiles, "tiles") : choice;
}

// One level in: a tile alone, the part around a cell, or the unit itself, selected for all tabs.
function enter(
  presenter: NetworkPresenter,
  layer: Layer,
  head: TensorHead,
  choice: axes.AxisChoice,
  block: SliceBlock,
  cell: BlockCell,
  setChoice: (choice: axes.AxisChoice) => void,
): void {
  const inside = axes.entered(choice, head, block, cell);
  if (inside) return setChoice(inside);
  const unit = unitOf(layer, head, axes.indexOfCell(choice, block, cell));
  if (unit !== null) presenter.select({ layer: layer.name, unit });
}

/** The unit of a layer at an index of one of its values; null for parameters and other shapes. */
export function unitOf(layer: Layer, head: TensorHead, index: (number | { first: number })[]): number | null {
  const inside = head.first >= 0 ? index.slice(1) : index;
  const shape = head.first >= 0 ? head.shape.slice(1) : head.shape;
  if (head.parameter || shape.join() !== layer.shape.join()) return null;
  return inside.reduce<number>((unit, part, axis) => unit * shape[axis] + (part as number), 0);
}

function ColourScale({ block, colours, setEachTile }: { block: SliceBlock; colours: Colours; setEachTile: (each: boolean) => void }) {
  const [lo, hi] = colourRange(colours.range ?? block.range(), colours.zeroCentred);
  const ramp = buildRamp(findColourMap(colours.map));
  const stops = [0, 64, 128, 192, 255].map((n) => `rgb(${ramp[n * 4]} ${ramp[n * 4 + 1]} ${ramp[n * 4 + 2]})`);
  return (
    <div class="tensor-scale">
      <span>{colours.eachTile ? "least" : formatNumber(lo, 3)}</span>
      <span class="bar" role="img" aria-label="Colours" style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }} />
      <span>{colours.eachTile ? "most" : formatNumber(hi, 3)}</span>
      {block.head.shape[0] > 1 && (
        <label>
          <input type="checkbox" checked={colours.eachTile} onChange={({ currentTarget }) => setEachTile(currentTarget.checked)} />
          each by itself
        </label>
      )}
    </div>
  );
} // prettier-ignore
