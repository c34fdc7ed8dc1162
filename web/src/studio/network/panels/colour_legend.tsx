// What the colours mean, and what the pointer is on.
import { useLayoutEffect, useRef } from "preact/hooks";
import { useValue } from "../../store";
import { paintStrange, strangeOf, STRANGE_NAMES, type Strange } from "../../non_finite";
import { theme } from "../../theme";
import { STYLES, typeOf } from "../scene/arrows";
import type { Board, Pointed } from "../presenter";
import { mapNamed, rampOf } from "../values/colour_maps";
import { indexIn, tileName, cellAt } from "../scene/unit_grid";
import { strangeIn } from "../values/value_ranges";

/** The colour bar with its numbers, and the arrows there are. */
export function Legend({ board }: { board: Board }) {
  const { arrows } = useValue(board.settings);
  const seen = useValue(board.seen);
  const net = useValue(board.store.net);
  const selection = useValue(board.store.selection);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { map, mode } = board.range(true);
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    const pixels = context?.createImageData(256, 1);
    if (!context || !pixels) return;
    pixels.data.set(rampOf(mapNamed(map)));
    context.putImageData(pixels, 0, 0);
  }, [map, !net?.layers.length]);
  if (!net?.layers.length) return null;
  const apart = mode === "layer";
  const name = selection?.layer ?? net.layers[net.layers.length - 1]?.layer.name;
  const [lo, hi] = board.scene.ranges.get(name ?? "") ?? [-1, 1];
  const types = [...new Set(net.projections.map(({ type }) => typeOf(type)))];
  return (
    <div class="network-legend">
      <div class="bar" role="img" aria-label={`Colours of ${seen.variable || "values"}: ${short(lo)} to ${short(hi)}`}>
        <b>{seen.variable}</b>
        <canvas ref={canvas} width={256} height={1} />
        <div class="numbers">
          <span>{short(lo)}</span>
          <span>{short((lo + hi) / 2)}</span>
          <span>{short(hi)}</span>
        </div>
        {[...board.scene.frames.values()].some(({ head }) => head.raster) && <small>a row per unit, ending at this moment</small>}
        {apart && <small>each layer by itself; these are of {name}</small>}
      </div>
      <StrangeOnes board={board} />
      {arrows && types.length > 1 && (
        <ul class="types" aria-label="Arrows">
          {types.map((type) => (
            <li key={type} class={type}>
              {STYLES[type].title}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

// NaN and the infinities, where there are any.
function StrangeOnes({ board }: { board: Board }) {
  useValue(board.seen);
  const kinds = strangeIn(board.scene.frames.values());
  if (!kinds.length) return null;
  return (
    <div class="strange-ones" role="list" aria-label="Not finite">
      {kinds.map((kind) => (
        <div key={kind} role="listitem">
          <StrangeSwatch kind={kind} />
          <span>{STRANGE_NAMES[kind]}</span>
        </div>
      ))}
    </div>
  );
}

function StrangeSwatch({ kind }: { kind: Strange }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const now = useValue(theme);
  useLayoutEffect(() => {
    const paper = getComputedStyle(canvas.current!).getPropertyValue("--net-plane").trim();
    paintStrange(canvas.current!, kind, paper);
  }, [now, kind]);
  return <canvas ref={canvas} class="swatch" width={32} height={20} aria-hidden="true" />;
}

/** What lies under the pointer: layer, index, value. */
export function Tooltip({ board }: { board: Board }) {
  const pointed = useValue(board.pointed);
  const net = useValue(board.store.net);
  const placed = net?.layers.find(({ layer }) => layer.name === pointed?.picked.layer);
  if (!pointed || !placed) return null;
  const { unit, column } = pointed.picked;
  const tile = unit < 0 ? "" : tileName(placed.layer, placed.grid, cellAt(placed.grid, unit).tile);
  const block = board.scene.frames.get(placed.layer.name)?.head;
  const { variable, missing } = board.seen.get();
  const why = missing.get(placed.layer.name);
  const grouped = block && Math.max(...block.block) > 1;
  return (
    <div class="network-tip" role="tooltip" style={spot(board, pointed)}>
      <b>{placed.layer.name}</b>
      {placed.layer.kind && <span class="soft"> {placed.layer.kind}</span>}
      {unit >= 0 && (
        <div class="index">
          {written(placed.layer.shape, unit)}
          {tile && <span class="soft"> · {tile}</span>}
          {column >= 0 && <span class="soft"> · {whenOf(board, placed.layer.name, column)}</span>}
        </div>
      )}
      {unit >= 0 && why === undefined && <ValueLine board={board} pointed={pointed} />}
      {why !== undefined && (
        <div class="why">
          no {variable}
          {why && `: ${why}`}
        </div>
      )}
      {grouped && (
        <div class="soft">
          cell: {Number.isNaN(pointed.rough) ? "one" : "largest"} of {block.block[0]}×{block.block[1]}
          {pointed.rough !== undefined && `, ${roughly(pointed.rough)}`}
        </div>
      )}
    </div>
  );
}

function ValueLine({ board, pointed }: { board: Board; pointed: Pointed }) {
  const { variable, moment } = board.seen.get();
  if (moment < 0) return null;
  const text = pointed.exact?.text ?? (pointed.rough !== undefined ? roughly(pointed.rough) : "…");
  return (
    <div class="value">
      <span class="soft">{variable}</span> <output>{text}</output>
    </div>
  );
}

function whenOf(board: Board, layer: string, column: number): string {
  const moment = board.momentOfColumn(layer, column);
  return moment ? `step ${moment.step}` : "not recorded";
}

// Beside the pointer, on the side of the window where there is room.
function spot(board: Board, pointed: Pointed): Record<string, string> {
  const { innerWidth: width, innerHeight: height } = window;
  const { left, top } = board.scene.canvas.getBoundingClientRect();
  const [x, y] = [left + pointed.x, top + pointed.y];
  const side: Record<string, string> = x > width - 290 ? { right: `${width - x + 14}px` } : { left: `${x + 14}px` };
  return { ...side, ...(y > height - 180 ? { bottom: `${height - y + 10}px` } : { top: `${y + 14}px` }) };
}

/** "[3, 0, 7]", or of a layer that is a line "unit 7". */
export function written(shape: number[], unit: number): string {
  return shape.length < 2 ? `unit ${unit}` : `[${indexIn(shape, unit).join(", ")}]`;
}

function roughly(value: number): string {
  return Number.isFinite(value) ? `≈ ${short(value)}` : short(value);
}

/** A number in few characters. */
export function short(value: number): string {
  const strange = strangeOf(value);
  if (strange) return STRANGE_NAMES[strange];
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
