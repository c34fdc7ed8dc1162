// The panel of the selected unit: its identity, its value, its layer's statistics, its values over time.
import { useEffect, useState } from "preact/hooks";
import { isWide } from "../../inspector/inspector_state";
import { LayerInspector } from "../../inspector/layer_inspector";
import type { PlacedLayer } from "../../messages";
import { Icon } from "../../shell/icons";
import { useValue, type Selection } from "../../store";
import type { NetworkPresenter } from "../presenter";
import { cellAt, tileName } from "../scene/unit_grid";
import { formatShort, formatUnit } from "./colour_legend";
import { UnitTrace } from "./unit_trace";
import type { ExactValue } from "../values/exact_values";

/** The panel on the right; nothing without a selection. */
export function UnitPanel({ presenter }: { presenter: NetworkPresenter }) {
  const selection = useValue(presenter.store.selection);
  const net = useValue(presenter.store.net);
  const wide = useValue(isWide);
  const placed = net?.layers.find(({ layer }) => layer.name === selection?.layer);
  if (!selection || !placed) return null;
  return (
    <aside class={`network-unit${wide ? " wide" : ""}`} aria-label="Selected unit">
      <header>
        <div>
          <h2>{placed.layer.name}</h2>
          <p class="soft">{[placed.layer.kind, placed.layer.shape.join(" × ")].filter(Boolean).join(" · ")}</p>
        </div>
        <div class="row">
          <button
            class="quiet"
            aria-label="Wide panel"
            aria-pressed={wide}
            title={wide ? "Make the panel narrow" : "Make the panel wide"}
            onClick={() => isWide.set(!wide)}
          >
            <Icon name="whole" />
          </button>
          <button
            class="quiet"
            aria-label="Clear the selection"
            title="Clear the selection (Escape)"
            onClick={() => presenter.select(null)}
          >
            <Icon name="close" />
          </button>
        </div>
      </header>
      <UnitFacts presenter={presenter} selection={selection} placed={placed} />
      <LayerInspector presenter={presenter} />
      <UnitTrace presenter={presenter} selection={selection} />
    </aside>
  );
}

function UnitFacts({
  presenter,
  selection,
  placed,
}: {
  presenter: NetworkPresenter;
  selection: Selection;
  placed: PlacedLayer;
}) {
  const displayed = useValue(presenter.displayed);
  const exact = useExactValue(presenter, selection);
  const tile = tileName(placed.layer, placed.grid, cellAt(placed.grid, selection.unit).tile);
  return (
    <dl>
      <dt>Unit</dt>
      <dd>
        <span class="chosen-dot" aria-hidden="true" />
        {formatUnit(placed.layer.shape, selection.unit)}
        {tile && <span class="soft"> · {tile}</span>}
      </dd>
      <dt>{displayed.variable || "Value"}</dt>
      <dd>
        <output id="network-value" class={exact?.value === null && /^(NaN|−?∞)$/.test(exact.text) ? "strange" : ""}>
          {displayed.moment < 0 ? "no value yet" : (exact?.text ?? "…")}
        </output>
      </dd>
      <LayerStatistics presenter={presenter} name={placed.layer.name} />
    </dl>
  );
}

function LayerStatistics({ presenter, name }: { presenter: NetworkPresenter; name: string }) {
  const reason = useValue(presenter.displayed).missing.get(name);
  const head = presenter.scene.frames.get(name)?.head;
  if (!head) {
    return (
      <>
        <dt>Layer</dt>
        <dd class="soft">{reason ? `no values: ${reason}` : "no values of it"}</dd>
      </>
    );
  }
  return (
    <>
      <dt>Layer</dt>
      <dd>
        {formatShort(head.lo)} … {formatShort(head.hi)}
      </dd>
      {head.nans > 0 && <NonFiniteCount name="NaN" count={head.nans} />}
      {head.infs > 0 && <NonFiniteCount name="Infinite" count={head.infs} />}
    </>
  );
}

function NonFiniteCount({ name, count }: { name: string; count: number }) {
  return (
    <>
      <dt class="strange">{name}</dt>
      <dd class="strange">
        <b>{count}</b> {count === 1 ? "unit" : "units"}
      </dd>
    </>
  );
}

// The value at the displayed moment; the previous one stays until the answer arrives.
function useExactValue(presenter: NetworkPresenter, selection: Selection): ExactValue | null {
  const { look, moment, variable } = useValue(presenter.displayed);
  const [exact, setExact] = useState<ExactValue | null>(null);
  useEffect(() => {
    let isStale = false;
    if (moment < 0) return setExact(null);
    presenter.exact(selection).then(
      (exact) => isStale || setExact(exact),
      () => isStale || setExact(null),
    );
    return () => {
      isStale = true;
    };
  }, [selection.layer, selection.unit, look, moment, variable]);
  return exact;
}
