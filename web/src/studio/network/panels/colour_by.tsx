// The choice of what the slabs are coloured by, shared with the graph, and its legend.
import { useLayoutEffect, useRef } from "preact/hooks";
import { RAMP, type SlabColours } from "../../colouring/slab_colours";
import { rampAt } from "../../../graph/render/quantity_scale";
import { useValue } from "../../store";
import type { NetworkPresenter } from "../presenter";
import { parseColour } from "../values/colour_maps";

/** The select; what cannot be chosen says why. */
export function ColourBy({ presenter }: { presenter: NetworkPresenter }) {
  const { store, numbers } = presenter;
  const quantity = useValue(store.colourBy);
  const net = useValue(store.net);
  useValue(store.tables);
  useValue(store.alerts);
  useValue(numbers.ofPass);
  return (
    <label title="What colours the layers: their values, or one number for each; the graph has the same colours">
      <span>Colour by</span>
      <select
        id="network-colour-by"
        value={quantity}
        disabled={!net}
        onChange={({ currentTarget }) => store.colourBy.set(currentTarget.value)}
      >
        {numbers.choices().map((choice) => (
          <option key={choice.quantity} value={choice.quantity} disabled={choice.reason !== ""} title={choice.reason}>
            {choice.quantity === "kind" ? "values" : choice.title}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The bar of a quantity's colours, and its ends. */
export function QuantityLegend({ title, colours }: { title: string; colours: SlabColours }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    const pixels = context?.createImageData(256, 1);
    if (!context || !pixels) return;
    for (let n = 0; n < 256; n++) pixels.data.set([...parseColour(rampAt(RAMP, n / 255).fill), 255], n * 4);
    context.putImageData(pixels, 0, 0);
  }, []);
  const [low, high] = colours.scale.ends();
  const { hasRange } = colours.scale;
  return (
    <div class="bar" role="img" aria-label={hasRange ? `Colours of ${title}: ${low} to ${high}` : title}>
      <b>{title}</b>
      <canvas ref={canvas} width={256} height={1} />
      {hasRange && (
        <div class="numbers">
          <span>{low}</span>
          <span>{high}</span>
        </div>
      )}
      <small>{rangeText(colours)}</small>
      {colours.hasNonFinite && <small>NaN or infinite: magenta</small>}
    </div>
  );
}

function rangeText({ scale, hasNonFinite }: SlabColours): string {
  if (scale.hasRange) return "of each layer, by powers of ten";
  return hasNonFinite ? "all others: 0 or unknown" : "no layer has more than 0";
}
