// The two values of a layer beside each other, and their difference: the same slice, the same colours.
import { useState } from "preact/hooks";

import { AxisControls } from "../inspector/axis_controls";
import * as axes from "../inspector/axis_choice";
import type { BlockCell, SliceBlock } from "../inspector/slice_block";
import { colourRange, TensorPicture, type Colours } from "../inspector/tensor_picture";
import { askSlice, askTensors, useAnswer } from "../inspector/tensor_queries";
import type { ComparisonCame, TensorHead } from "../messages";
import { buildRamp, findColourMap } from "../network/values/colour_maps";
import { useValue, type Store } from "../store";
import { formatNumber } from "../tables/value_format";
import { sharedRange } from "./difference_rows";

const CELLS = 1 << 15; // of a picture, at most
const MAP = "BlueOrange";
const VARIABLES = ["First", "Second", "Difference"] as const;
type Variable = (typeof VARIABLES)[number];

/** The pictures of a layer. */
export function PairView({ store, layer, comparison }: { store: Store; layer: string; comparison: ComparisonCame }) {
  const title = useValue(store.hello)?.title ?? "";
  const asked = useAnswer({ layer, title }, (place) => askTensors(store, place.layer, -1), null);
  const heads = asked?.question.layer === layer ? asked.value?.tensors : undefined;
  return (
    <section class="compare-pair" aria-label="Side by side">
      <h2 title={layer}>{layer}</h2>
      {heads ? (
        <Pictures key={`${title} ${layer}`} {...{ store, layer, comparison }} heads={heads} />
      ) : (
        <p class="soft">{asked?.problem || "Loading…"}</p>
      )}
    </section>
  );
}

interface PicturesProps {
  store: Store;
  layer: string;
  comparison: ComparisonCame;
  heads: TensorHead[];
}

function Pictures({ store, layer, comparison, heads }: PicturesProps) {
  const { item } = useValue(store.viewSettings);
  const named = (variable: Variable): TensorHead | undefined => heads.find((head) => head.variable === variable);
  const leading = named("Difference")?.why === "" ? named("Difference") : heads.find(({ why }) => !why);
  const [choice, setChoice] = useState(() => leading && axes.firstChoice(leading, item));
  const [cursor, setCursor] = useState<BlockCell | null>(null);
  const place = { store, layer, choice, leading, item };
  const blocks = [
    useSlice(place, named("First")),
    useSlice(place, named("Second")),
    useSlice(place, named("Difference")),
  ];
  const range = sharedRange(blocks.slice(0, 2).map((asked) => asked.block?.range()));
  const isSameShape = named("Difference")?.why === "";
  if (!leading || !choice) return <p class="tensor-why">{heads[0]?.why ?? "There is nothing to show"}.</p>;
  return (
    <>
      {isSameShape && <AxisControls head={leading} choice={choice} onChoice={setChoice} />}
      {choice.zoom && (
        <button class="quiet" onClick={() => setChoice({ ...choice, zoom: null })}>
          Show the whole
        </button>
      )}
      <div class="compare-pictures">
        {VARIABLES.map((variable, place) => (
          <Picture
            key={variable}
            title={{ First: comparison.first, Second: comparison.second, Difference: "Second − First" }[variable]}
            variable={variable}
            head={named(variable)}
            asked={blocks[place]}
            range={variable === "Difference" ? (blocks[2].block?.range() ?? null) : range}
            cursor={isSameShape ? cursor : undefined}
            onCursor={isSameShape ? setCursor : undefined}
            onEnter={
              isSameShape
                ? (cell) => setChoice(axes.entered(choice, leading, blocks[place].block!, cell) ?? choice)
                : undefined // each has axes of its own
            }
            onLeave={() => setChoice(axes.firstChoice(leading, item))}
          />
        ))}
      </div>
    </>
  );
}

interface SlicePlace {
  store: Store;
  layer: string;
  choice: axes.AxisChoice | undefined; // of the pictures that have the leading one's shape
  leading: TensorHead | undefined;
  item: number; // of the batch
}

interface AskedSlice {
  block: SliceBlock | null;
  choice: axes.AxisChoice | null;
  problem: string;
}

// The slice of one side; where the shapes differ, each has its own axes.
function useSlice({ store, layer, choice: shared, leading, item }: SlicePlace, head?: TensorHead): AskedSlice {
  const isSame = head?.shape.join() === leading?.shape.join();
  const choice = !head || head.why || !shared ? null : isSame ? shared : axes.firstChoice(head, item);
  const place = head && choice && { layer, variable: head.variable, parameter: "", moment: -1 };
  const question = place ? { ...place, ...axes.sliceQuestion(choice, CELLS) } : null;
  const asked = useAnswer(question, (next) => askSlice(store, next), null);
  const isCurrent = asked && choice && axes.ROLES.every((role) => asked.question[role] === choice[role]);
  return { block: isCurrent ? asked.value : null, choice, problem: asked?.problem ?? "" };
}

interface PictureProps {
  title: string;
  variable: Variable;
  head: TensorHead | undefined;
  asked: AskedSlice;
  range: [number, number] | null;
  cursor?: BlockCell | null;
  onCursor?: (cell: BlockCell | null) => void;
  onEnter?: (cell: BlockCell) => void;
  onLeave: () => void;
}

function Picture({ title, variable, head, asked, range, cursor, onCursor, onEnter, onLeave }: PictureProps) {
  const colours: Colours = { map: MAP, zeroCentred: true, eachTile: false, range };
  const { block, choice, problem } = asked;
  return (
    <figure class={`compare-picture of-${variable.toLowerCase()}`} aria-label={variable}>
      <figcaption>
        <b>{variable}</b>
        <span class="soft" title={title}>
          {title}
        </span>
      </figcaption>
      {problem && <p class="tensor-why">{problem}</p>}
      {head?.why && <p class="tensor-why">Not there: {head.why}.</p>}
      {head && block && choice && !head.why && (
        <>
          <TensorPicture
            {...{ head, choice, block, colours, onEnter, onLeave, cursor, onCursor }}
            wide={false}
            label={`${variable}, ${block.head.shape.join(" × ")} cells`}
          />
          <Scale range={colourRange(range, true)} />
        </>
      )}
    </figure>
  );
}

function Scale({ range: [lo, hi] }: { range: [number, number] }) {
  const ramp = buildRamp(findColourMap(MAP));
  const stops = [0, 64, 128, 192, 255].map((n) => `rgb(${ramp[n * 4]} ${ramp[n * 4 + 1]} ${ramp[n * 4 + 2]})`);
  return (
    <div class="tensor-scale">
      <span>{formatNumber(lo, 3)}</span>
      <span
        class="bar"
        role="img"
        aria-label="Colours"
        style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }}
      />
      <span>{formatNumber(hi, 3)}</span>
    </div>
  );
}
