// The picture of a slice: a colour for each cell; pointer, touch and keys read the exact numbers.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { TensorHead } from "../messages";
import { buildRamp, findColourMap, parseColour } from "../network/values/colour_maps";
import { nonFiniteColours, nonFiniteKind } from "../non_finite";
import { useValue } from "../signal";
import { theme } from "../theme";
import { indexOfCell, type AxisChoice } from "./axis_choice";
import { lookOf, marginNames, NAMES_PX, TokenMargins } from "./token_margins";
import { cellUnder, cornerOf, layOut, nextCell, placeOf, type PictureLayout } from "./picture_layout";
import type { BlockCell, SliceBlock } from "./slice_block";

const [HEIGHT_PX, WIDE_HEIGHT_PX] = [300, 560];

/** How numbers become colours. */
export interface Colours {
  map: string;
  zeroCentred: boolean;
  eachTile: boolean; // a range for each tile
  range?: [number, number] | null; // of all pictures that share these colours; without one, the block's own
}

interface TensorPictureProps {
  head: TensorHead;
  choice: AxisChoice;
  block: SliceBlock;
  colours: Colours;
  wide: boolean;
  label: string;
  names?: readonly string[][]; // of tokens
  onEnter?: (cell: BlockCell) => void; // where a cell can be looked at more closely
  onLeave: () => void;
  cursor?: BlockCell | null; // where pictures side by side share it, with `onCursor`
  onCursor?: (cell: BlockCell | null) => void;
}

/** The picture and what is read from it. */
export function TensorPicture(props: TensorPictureProps) {
  const { head, choice, block, colours, wide, label, names = [], onEnter, onLeave } = props;
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [ownCursor, setOwnCursor] = useState<BlockCell | null>(null);
  const [cursor, setCursor] = props.onCursor ? [props.cursor ?? null, props.onCursor] : [ownCursor, setOwnCursor];
  const width = useWidth(host);
  const themeName = useValue(theme);
  const margin = marginNames(head, choice, block, names);
  const place = [Math.max(1, width - (margin ? NAMES_PX : 0)), wide ? WIDE_HEIGHT_PX : HEIGHT_PX] as const;
  const layout = layOut(block.head.shape, ...place, wide ? 88 : 56);
  const cell = cursor && isInside(cursor, block) ? cursor : null;
  useLayoutEffect(() => {
    if (width) paint(canvas.current!, block, layout, colours, cell);
  }, [block, width, wide, themeName, cell, colours.map, colours.zeroCentred, colours.eachTile, colours.range?.join()]);
  const pointAt = (event: PointerEvent): BlockCell | null => cellUnder(layout, event.offsetX, event.offsetY);
  const press = (event: KeyboardEvent): void => {
    const target = nextCell(layout, cell ?? { tile: 0, row: 0, column: 0 }, event.key);
    if (target) setCursor(cell ? target : { tile: 0, row: 0, column: 0 });
    else if (event.key === "Enter" && cell) onEnter?.(cell);
    else if (event.key === "Escape" && cell) setCursor(null);
    else if (event.key === "Escape") onLeave();
    else return;
    event.preventDefault();
    event.stopPropagation(); // the network's own arrows
  };
  return (
    <>
      <div ref={host} class={margin ? "tensor-picture named" : "tensor-picture"}>
        {margin && <TokenMargins names={margin} layout={layout} />}
        <canvas
          ref={canvas}
          role="img"
          tabIndex={0}
          aria-label={`${label}. Arrows read its numbers${onEnter ? ", Enter looks closer" : ""}.`}
          style={{ width: `${layout.width}px`, height: `${layout.height}px` }}
          onPointerMove={(event) => setCursor(pointAt(event))}
          onPointerDown={(event) => setCursor(pointAt(event))}
          onPointerLeave={(event) => event.pointerType === "mouse" && setCursor(null)}
          onClick={(event) => {
            const clicked = cellUnder(layout, event.offsetX, event.offsetY);
            if (clicked) onEnter?.(clicked);
          }}
          onKeyDown={press}
        />
      </div>
      <output class="tensor-reading" aria-live="polite">
        {cell ? (
          describeCell(head, choice, block, cell, names)
        ) : (
          <span class="soft">{hint(block, onEnter !== undefined)}</span>
        )}
      </output>
    </>
  );
}

function hint(block: SliceBlock, canEnter: boolean): string {
  if (!block.cells.length) return "It has no numbers.";
  if (block.head.shape[0] > 1 && canEnter) return "Point at a cell, or use the arrows; click a tile to see it alone.";
  if (block.isReduced)
    return `A cell is the number of its block farthest from 0${canEnter ? "; click to look closer" : ""}.`;
  return "Point at a cell, or use the arrows.";
}

function isInside({ tile, row, column }: BlockCell, { head: { shape } }: SliceBlock): boolean {
  return tile < shape[0] && row < shape[1] && column < shape[2];
}

/** A cell's index and its exact number: "[0, 3, 17, 4] = -0.034". */
export function describeCell(
  head: TensorHead,
  choice: AxisChoice,
  block: SliceBlock,
  cell: BlockCell,
  names: readonly string[][] = [],
): string {
  const parts = indexOfCell(choice, block, cell).map((part, axis) => {
    const offset = axis === 0 && head.first > 0 ? head.first : 0;
    return typeof part === "number" ? `${part + offset}` : `${part.first + offset}–${part.last + offset}`;
  });
  const text = block.textAt(block.indexOf(cell));
  const looks = lookOf(head, indexOfCell(choice, block, cell), names);
  return `${parts.length ? `[${parts.join(", ")}] ` : ""}${block.isReduced ? "farthest from 0: " : "= "}${text}${looks && ` · ${looks}`}`; // prettier-ignore
}

function useWidth(host: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    setWidth(host.current!.clientWidth);
    const observer = new ResizeObserver(() => host.current && setWidth(host.current.clientWidth));
    observer.observe(host.current!);
    return () => observer.disconnect();
  }, []);
  return width;
}

// -- painting ---------------------------------------------------------------------------------------------------------

/** The range that colours span. */
export function colourRange(range: [number, number] | null, zeroCentred: boolean): [number, number] {
  const [lo, hi] = range ?? [0, 0];
  const size = Math.max(Math.abs(lo), Math.abs(hi));
  if (zeroCentred && lo < 0) return [-size, size];
  if (zeroCentred) return [-size || -1, size || 1];
  return hi > lo ? [lo, hi] : [lo - (size || 1), hi + (size || 1)];
}

function paint(
  canvas: HTMLCanvasElement,
  block: SliceBlock,
  layout: PictureLayout,
  colours: Colours,
  cursor: BlockCell | null,
): void {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(layout.width * scale));
  canvas.height = Math.max(1, Math.round(layout.height * scale));
  const context = canvas.getContext("2d")!;
  const cells = paintCells(block, layout, colours);
  context.imageSmoothingEnabled = false;
  context.scale(scale, scale);
  const [width, height] = [layout.columns * layout.cellWidth, layout.rows * layout.cellHeight];
  for (let tile = 0; tile < layout.tiles && layout.rows && layout.columns; tile++) {
    const [x, y] = cornerOf(layout, tile);
    const [left, top] = [tile % layout.tileColumns, Math.floor(tile / layout.tileColumns)];
    context.drawImage(
      cells,
      left * layout.columns,
      top * layout.rows,
      layout.columns,
      layout.rows,
      x,
      y,
      width,
      height,
    );
  }
  if (cursor) outline(context, layout, cursor);
}

// One pixel for each cell, tile beside tile.
function paintCells(block: SliceBlock, layout: PictureLayout, colours: Colours): HTMLCanvasElement {
  const { tiles, tileColumns, rows, columns, cells } = layout;
  const picture = document.createElement("canvas");
  picture.width = Math.max(1, tileColumns * columns);
  picture.height = Math.max(1, Math.ceil(tiles / tileColumns) * rows);
  const context = picture.getContext("2d")!;
  const image = context.createImageData(picture.width, picture.height);
  const pixels = new Uint32Array(image.data.buffer);
  const ramp = new Uint32Array(buildRamp(findColourMap(colours.map)).buffer);
  const strange = nonFinitePixels();
  const all = colourRange(colours.range ?? block.range(), colours.zeroCentred);
  for (let tile = 0; tile < tiles; tile++) {
    const [lo, hi] = colours.eachTile ? colourRange(block.range(tile), colours.zeroCentred) : all;
    const origin = Math.floor(tile / tileColumns) * rows * picture.width + (tile % tileColumns) * columns;
    for (let n = 0; n < cells; n++) {
      const value = block.numberAt(tile * cells + n);
      const kind = nonFiniteKind(value);
      const shade = Math.max(0, Math.min(255, Math.round(((value - lo) / (hi - lo)) * 255)));
      pixels[origin + Math.floor(n / columns) * picture.width + (n % columns)] = kind ? strange[kind] : ramp[shade];
    }
  }
  context.putImageData(image, 0, 0);
  return picture;
}

function nonFinitePixels(): Record<"nan" | "plus" | "minus", number> {
  const { nan, plus, minus } = nonFiniteColours();
  const pixel = (colour: string): number => new Uint32Array(new Uint8Array([...parseColour(colour), 255]).buffer)[0];
  return { nan: pixel(nan), plus: pixel(plus), minus: pixel(minus) };
}

function outline(context: CanvasRenderingContext2D, layout: PictureLayout, cursor: BlockCell): void {
  const [x, y] = cornerOf(layout, cursor.tile);
  const [row, column] = placeOf(layout, cursor);
  const [width, height] = [Math.max(layout.cellWidth, 4), Math.max(layout.cellHeight, 4)];
  const [left, top] = [x + column * layout.cellWidth, y + row * layout.cellHeight];
  for (const [colour, inset] of [
    ["#ffffff", -0.5],
    ["#000000", 0.5],
  ] as const) {
    context.strokeStyle = colour;
    context.strokeRect(left + inset, top + inset, width - 2 * inset, height - 2 * inset);
  }
}
