// The colour legend, and the tooltip under the pointer.
import { useLayoutEffect, useRef } from "preact/hooks";
import { useValue } from "../../store";
import { paintNonFinite, nonFiniteKind, NON_FINITE_NAMES, type NonFinite } from "../../non_finite";
import { theme } from "../../theme";
import { lookText } from "../../token_names";
import { ARROW_STYLES, arrowType } from "../scene/arrows";
import type { NetworkPresenter, HoverTarget } from "../presenter";
import { findColourMap, buildRamp } from "../values/colour_maps";
import { unravelUnit, tileName, cellAt } from "../scene/unit_grid";
import { layerSetting, nonFiniteIn } from "../values/value_ranges";
import { QuantityLegend } from "./colour_by";
import { pixelFraction, pixelValues } from "../scene/rgb_picture";
import type { PlacedLayer } from "../../messages";

/** The colour bar with its numbers, and the arrow types in use. */
export function ColourLegend({ presenter }: { presenter: NetworkPresenter }) {
  const { arrows } = useValue(presenter.settings);
  const displayed = useValue(presenter.displayed);
  const net = useValue(presenter.store.net);
  const visible = useValue(presenter.folding.visible);
  const selection = useValue(presenter.store.selection);
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useValue(presenter.colours);
  const setting = presenter.range(true);
  const name = rangeLayer(presenter, selection?.layer);
  const layer = visible?.net.layers.find((placed) => placed.layer.name === name)?.layer;
  const { map } = layer ? layerSetting(setting, layer, displayed.variable) : setting;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    const pixels = context?.createImageData(256, 1);
    if (!context || !pixels) return;
    pixels.data.set(buildRamp(findColourMap(map)));
    context.putImageData(pixels, 0, 0);
  }, [map, !net?.layers.length, !colours]);
  if (!net?.layers.length) return null;
  const isPerLayer = setting.mode === "layer";
  const hasShares = visible?.net.layers.some(
    (placed) => placed.layer.range && presenter.scene.frames.has(placed.layer.name),
  );
  const [lo, hi] = presenter.scene.ranges.get(name) ?? [-1, 1];
  const types = [...new Set(visible?.net.projections.map(({ type }) => arrowType(type)))];
  if (colours)
    return (
      <div class="network-legend">
        <QuantityLegend title={presenter.numbers.nameOf(colours.scale.quantity)} colours={colours} />
      </div>
    );
  return (
    <div class="network-legend">
      <div
        class="bar"
        role="img"
        aria-label={`Colours of ${displayed.variable || "values"}: ${formatShort(lo)} to ${formatShort(hi)}`}
      >
        <b>{displayed.variable}</b>
        <canvas ref={canvas} width={256} height={1} />
        <div class="numbers">
          <span>{formatShort(lo)}</span>
          <span>{formatShort((lo + hi) / 2)}</span>
          <span>{formatShort(hi)}</span>
        </div>
        {[...presenter.scene.frames.values()].some(({ head }) => head.raster) && (
          <small>a row per unit, ending at this moment</small>
        )}
        {pictureNotes(presenter).map((note) => (
          <small key={note}>{note}</small>
        ))}
        {isPerLayer && name && (
          <small>each layer by itself; these are of {visible?.items.get(name)?.title ?? name}</small>
        )}
        {isPerLayer && hasShares && displayed.variable === "Act" && <small>attention: 0 is dark, 1 is bright</small>}
      </div>
      <NonFiniteKey presenter={presenter} />
      {arrows && presenter.webgl && types.length > 1 && (
        <ul class="types" aria-label="Arrows">
          {types.map((type) => (
            <li key={type} class={type}>
              {ARROW_STYLES[type].title}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

// The layer whose range the numbers are: the selected one if it is shown, else the last slab that has values.
function rangeLayer({ scene, folding }: NetworkPresenter, selected = ""): string {
  if (scene.ranges.has(selected)) return selected;
  const shown = (folding.visible.get()?.net.layers ?? []).map(({ layer }) => layer.name).reverse();
  const isColoured = (layer: string): boolean => scene.frames.has(layer) && !scene.layoutOf(layer)?.picture;
  return shown.find(isColoured) ?? shown[0] ?? "";
}

// "Input: a picture, 0 is black, 1 full colour", for each layer that is one.
function pictureNotes({ scene }: NetworkPresenter): string[] {
  return [...scene.frames.keys()].flatMap((layer) => {
    const shades = scene.layoutOf(layer)?.picture?.shades;
    return shades
      ? [`${layer}: a picture, ${formatShort(shades[0])} is black, ${formatShort(shades[1])} full colour`]
      : [];
  });
}

// NaN and the infinities, if there are any.
function NonFiniteKey({ presenter }: { presenter: NetworkPresenter }) {
  useValue(presenter.displayed);
  const kinds = nonFiniteIn(presenter.scene.frames.values());
  if (!kinds.length) return null;
  return (
    <div class="strange-ones" role="list" aria-label="Not finite">
      {kinds.map((kind) => (
        <div key={kind} role="listitem">
          <NonFiniteSwatch kind={kind} />
          <span>{NON_FINITE_NAMES[kind]}</span>
        </div>
      ))}
    </div>
  );
}

function NonFiniteSwatch({ kind }: { kind: NonFinite }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const themeName = useValue(theme);
  useLayoutEffect(() => {
    const paper = getComputedStyle(canvas.current!).getPropertyValue("--net-plane").trim();
    paintNonFinite(canvas.current!, kind, paper);
  }, [themeName, kind]);
  return <canvas ref={canvas} class="swatch" width={32} height={20} aria-hidden="true" />;
}

/** The tooltip: layer, index and value under the pointer. */
export function Tooltip({ presenter }: { presenter: NetworkPresenter }) {
  const hovered = useValue(presenter.hovered);
  const net = useValue(presenter.store.net);
  const placed = net?.layers.find(({ layer }) => layer.name === hovered?.target.layer);
  if (!hovered || !placed) return null;
  const { unit, column } = hovered.target;
  const tile = unit < 0 ? "" : tileName(placed.layer, placed.grid, cellAt(placed.grid, unit).tile);
  const head = presenter.scene.frames.get(placed.layer.name)?.head;
  const { variable, missing } = presenter.displayed.get();
  const reason = missing.get(placed.layer.name);
  const isReduced = head && Math.max(...head.block) > 1;
  const [row, key] = unravelUnit(placed.layer.shape, unit).slice(-2);
  const looks =
    placed.layer.view === "heads" && unit >= 0 ? lookText(presenter.headNames(placed.layer.shape), row, key) : "";
  const pixel = unit < 0 ? null : pixelUnder(presenter, placed, hovered);
  return (
    <div class="network-tip" role="tooltip" style={tooltipPosition(presenter, hovered)}>
      <b>{placed.layer.name}</b>
      {placed.layer.kind && <span class="soft"> {placed.layer.kind}</span>}
      {unit >= 0 && pixel && (
        <div class="index">
          row {pixel.row}, column {pixel.column}
        </div>
      )}
      {unit >= 0 && !pixel && (
        <div class="index">
          {formatUnit(placed.layer.shape, unit)}
          {tile && <span class="soft"> · {tile}</span>}
          {looks && <b> · {looks}</b>}
          {column >= 0 && <span class="soft"> · {columnLabel(presenter, placed.layer.name, column)}</span>}
        </div>
      )}
      {unit >= 0 && reason === undefined && !pixel && <ValueLine presenter={presenter} hovered={hovered} />}
      {pixel && <div class="value">{pixel.text}</div>}
      {reason !== undefined && (
        <div class="why">
          no {variable}
          {reason && `: ${reason}`}
        </div>
      )}
      {isReduced && (
        <div class="soft">
          cell: {Number.isNaN(hovered.approximate) ? "one" : "largest"} of {head.block[0]}×{head.block[1]}
          {hovered.approximate !== undefined && `, ${formatApproximate(hovered.approximate)}`}
        </div>
      )}
    </div>
  );
}

// The pixel of a picture that is pointed at: "R 0.4 · G 0.6 · B 0.95".
function pixelUnder({ scene }: NetworkPresenter, { layer }: PlacedLayer, { target }: HoverTarget): PixelText | null {
  const [picture, frame] = [scene.layoutOf(layer.name)?.picture, scene.frames.get(layer.name)];
  if (!picture || !frame) return null;
  const [column, row] = pixelFraction(picture, target.cell).map((share, n) =>
    Math.floor(share * (n ? picture.height : picture.width)),
  );
  const text = pixelValues(picture, frame, target.cell).map((value, n) => `${"RGB"[n]} ${value === undefined ? "–" : formatShort(value)}`); // prettier-ignore
  return { row, column, text: text.join(" · ") };
}
type PixelText = { row: number; column: number; text: string };

function ValueLine({ presenter, hovered }: { presenter: NetworkPresenter; hovered: HoverTarget }) {
  const { variable, moment } = presenter.displayed.get();
  if (moment < 0) return null;
  const text =
    hovered.exact?.text ?? (hovered.approximate !== undefined ? formatApproximate(hovered.approximate) : "…");
  return (
    <div class="value">
      <span class="soft">{variable}</span> <output>{text}</output>
    </div>
  );
}

function columnLabel(presenter: NetworkPresenter, layer: string, column: number): string {
  const moment = presenter.momentOfColumn(layer, column);
  return moment ? `step ${moment.step}` : "not recorded";
}

// Place the tooltip beside the pointer, on the side of the window that has room.
function tooltipPosition(presenter: NetworkPresenter, hovered: HoverTarget): Record<string, string> {
  const { innerWidth: width, innerHeight: height } = window;
  const { left, top } = presenter.scene.canvas.getBoundingClientRect();
  const [x, y] = [left + hovered.x, top + hovered.y];
  const side: Record<string, string> = x > width - 290 ? { right: `${width - x + 14}px` } : { left: `${x + 14}px` };
  return { ...side, ...(y > height - 180 ? { bottom: `${height - y + 10}px` } : { top: `${y + 14}px` }) };
}

/** "[3, 0, 7]", or "unit 7" for a one-dimensional layer. */
export function formatUnit(shape: number[], unit: number): string {
  return shape.length < 2 ? `unit ${unit}` : `[${unravelUnit(shape, unit).join(", ")}]`;
}

function formatApproximate(value: number): string {
  return Number.isFinite(value) ? `≈ ${formatShort(value)}` : formatShort(value);
}

/** Format a number in few characters. */
export function formatShort(value: number): string {
  const kind = nonFiniteKind(value);
  if (kind) return NON_FINITE_NAMES[kind];
  if (value === 0) return "0";
  const magnitude = Math.abs(value);
  if (magnitude >= 1e5 || magnitude < 1e-3)
    return value.toExponential(1).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
