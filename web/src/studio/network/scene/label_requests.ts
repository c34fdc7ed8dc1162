// Which names the picture wants: one for each layer, and for each tile that is large on the screen.
import { Vector3 } from "three";
import { blockShare, tileName } from "./unit_grid";
import type { Spot, Wish } from "./labels";
import type { LayerView } from "./layer_mesh";

const SMALLEST = 14; // pixels of a plane that still gets its name
const TILE = 130; // pixels of a tile that gets its own
const MOST_TILES = 48;
const LONGEST = 24; // letters of a name; of a longer path its end is shown, where layers differ

/** How the scene is seen. */
export interface Sight {
  width: number;
  height: number;
  worldPerPixel: number;
  crowded: boolean;
  filled: boolean; // whether some layer has values
  onScreen(point: Vector3): { x: number; y: number } | null; // null: behind the one who looks
}

/** The names of a layer and of its tiles. */
export function wishesOf(view: LayerView, sight: Sight, chosen: boolean): Wish[] {
  const { layer, place, size } = view.placed;
  const corner = (a: number, c: number): { x: number; y: number } | null =>
    sight.onScreen(new Vector3(place[0] + a * (size[0] / 2 + 0.35), place[1], place[2] + c * (size[1] / 2 + 0.35)));
  const quad = [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)].filter((one) => one !== null);
  const tiles = tileWishes(view, sight);
  if (quad.length < 4) return tiles;
  const [xs, ys] = [quad.map(({ x }) => x), quad.map(({ y }) => y)];
  const [wide, high] = [Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)];
  if (Math.max(wide, high) < SMALLEST) return tiles;
  const empty = sight.filled && !view.frame ? " · no values" : "";
  const detail = sight.crowded && !chosen ? "" : `${layer.shape.join(" × ")}${empty}`;
  const wish = { key: layer.name, title: titleOf(layer.name), detail, spots: spotsOf(quad), chosen, quad };
  return [{ ...wish, weight: (chosen ? 1e9 : 0) + wide }, ...tiles];
}

/** A name as it stands beside its layer: "…denselayer3.conv" of a long path. */
export function titleOf(name: string): string {
  const cut = name.length > LONGEST && /^[\w.]+$/.test(name) ? name.indexOf(".", name.length - LONGEST) : -1;
  return cut < 0 ? name : `…${name.slice(cut + 1)}`;
}

// Left of it, below it, right of it: where most of the picture is not.
function spotsOf(quad: { x: number; y: number }[]): Spot[] {
  const left = quad.reduce((best, one) => (one.x < best.x ? one : best));
  const front = quad.reduce((best, one) => (one.y > best.y ? one : best));
  const right = quad.reduce((best, one) => (one.x > best.x ? one : best));
  return [
    { x: left.x - 6, y: left.y, align: "right" },
    { x: left.x - 6, y: left.y - 16, align: "right" },
    { x: left.x - 6, y: left.y + 16, align: "right" },
    { x: front.x, y: front.y + 3, align: "centre" },
    { x: right.x + 6, y: right.y, align: "left" },
  ];
}

// "map 3" at the front of each tile that is large enough on the screen.
function tileWishes(view: LayerView, sight: Sight): Wish[] {
  const { layer, place, size, units, grid } = view.placed;
  const sent = view.layout.sent;
  const wide = (view.cellSize()[0] * sent[3]) / sight.worldPerPixel;
  if (sent[0] * sent[1] === 1 || wide < TILE || view.frame?.head.raster) return [];
  const wishes: Wish[] = [];
  const shown = Math.min(sent[0] * sent[1], Math.ceil(units / (grid[2] * grid[3])));
  const half = (view.cellSize()[1] * 0.5) / size[1];
  for (let tile = 0; tile < shown && wishes.length < MOST_TILES; tile++) {
    const front = ((tile + 1) * sent[2] - 1) * sent[3] + Math.floor(sent[3] / 2);
    const [left, back] = blockShare(view.layout, front);
    const [x, z] = [place[0] + (left - 0.5) * size[0], place[2] + (back + half - 0.5) * size[1]];
    const spot = sight.onScreen(new Vector3(x, place[1], z));
    if (!spot || spot.x < 0 || spot.y < 0 || spot.x > sight.width || spot.y > sight.height) continue;
    const spots: Spot[] = [{ ...spot, align: "centre" }];
    wishes.push({ key: `${layer.name}\0${tile}`, title: tileName(layer, sent, tile), detail: "", weight: -tile, spots, chosen: false }); // prettier-ignore
  }
  return wishes;
}
