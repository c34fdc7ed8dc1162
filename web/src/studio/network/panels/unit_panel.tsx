// The selected unit: what it is, what it says now, how its layer is, and how it got there.
import { useEffect, useState } from "preact/hooks";
import type { PlacedLayer } from "../../messages";
import { Icon } from "../../shell/icons";
import { useValue, type Selection } from "../../store";
import type { Board } from "../presenter";
import { cellAt, tileName } from "../scene/unit_grid";
import { short, written } from "./colour_legend";
import { Trace } from "./unit_trace";
import type { Exact } from "../values/exact_values";

/** The panel on the right; nothing where nothing is selected. */
export function SelectionPanel({ board }: { board: Board }) {
  const selection = useValue(board.store.selection);
  const net = useValue(board.store.net);
  const placed = net?.layers.find(({ layer }) => layer.name === selection?.layer);
  if (!selection || !placed) return null;
  return (
    <aside class="network-unit" aria-label="Selected unit">
      <header>
        <div>
          <h2>{placed.layer.name}</h2>
          <p class="soft">{[placed.layer.kind, placed.layer.shape.join(" × ")].filter(Boolean).join(" · ")}</p>
        </div>
        <button class="quiet" aria-label="Clear the selection" title="Clear the selection (Escape)" onClick={() => board.select(null)}>
          <Icon name="close" />
        </button>
      </header>
      <Facts board={board} selection={selection} placed={placed} />
      <Trace board={board} selection={selection} />
    </aside>
  );
}

function Facts({ board, selection, placed }: { board: Board; selection: Selection; placed: PlacedLayer }) {
  const seen = useValue(board.seen);
  const exact = useExact(board, selection);
  const tile = tileName(placed.layer, placed.grid, cellAt(placed.grid, selection.unit).tile);
  return (
    <dl>
      <dt>Unit</dt>
      <dd>
        <span class="chosen-dot" aria-hidden="true" />
        {written(placed.layer.shape, selection.unit)}
        {tile && <span class="soft"> · {tile}</span>}
      </dd>
      <dt>{seen.variable || "Value"}</dt>
      <dd>
        <output id="network-value" class={exact?.value === null && /^(NaN|−?∞)$/.test(exact.text) ? "strange" : ""}>
          {seen.moment < 0 ? "no value yet" : (exact?.text ?? "…")}
        </output>
      </dd>
      <Statistics board={board} name={placed.layer.name} />
    </dl>
  );
}

function Statistics({ board, name }: { board: Board; name: string }) {
  const why = useValue(board.seen).missing.get(name);
  const head = board.scene.frames.get(name)?.head;
  if (!head) {
    return (
      <>
        <dt>Layer</dt>
        <dd class="soft">{why ? `no values: ${why}` : "no values of it"}</dd>
      </>
    );
  }
  return (
    <>
      <dt>Layer</dt>
      <dd>
        {short(head.lo)} … {short(head.hi)}
      </dd>
      {head.nans > 0 && <Strange name="NaN" count={head.nans} />}
      {head.infs > 0 && <Strange name="Infinite" count={head.infs} />}
    </>
  );
}

function Strange({ name, count }: { name: string; count: number }) {
  return (
    <>
      <dt class="strange">{name}</dt>
      <dd class="strange">
        <b>{count}</b> {count === 1 ? "unit" : "units"}
      </dd>
    </>
  );
}

// The value at the moment that is shown; the one before stays until the answer came.
function useExact(board: Board, selection: Selection): Exact | null {
  const { look, moment, variable } = useValue(board.seen);
  const [found, setFound] = useState<Exact | null>(null);
  useEffect(() => {
    let late = false;
    if (moment < 0) return setFound(null);
    board.exact(selection).then(
      (exact) => late || setFound(exact),
      () => late || setFound(null),
    );
    return () => {
      late = true;
    };
  }, [selection.layer, selection.unit, look, moment, variable]);
  return found;
}
