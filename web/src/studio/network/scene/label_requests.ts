// Label requests: one per layer, and one per tile that is large enough on the screen.
import type { Vector3 } from "three";
import { scenePoint } from "./layer_pose";
import { sentCellFraction, tileName } from "./unit_grid";
import type { LabelSpot } from "./label_placement";
import type { LabelRequest } from "./labels";
import type { LayerMesh } from "./layer_mesh";
import type { Fault } from "../fold/faults";
import type { SceneItem } from "../fold/visible_net";

const MIN_NAMED_PX = 14; // minimum size in pixels of a plane that gets a name
const MIN_TILE_PX = 130; // minimum width in pixels of a tile that gets a name
const MIN_TILE_HEIGHT_PX = 36;
const MAX_TILES = 48;
export const NARROW_PX = 520; // below, labels are names alone: two lines would leave no room for all of them
const MAX_TITLE_LENGTH = 24; // characters; of a longer path the end is shown, where layers differ

/** The viewport that labels are computed for. */
export interface LabelViewport {
  width: number;
  height: number;
  worldPerPixel: number;
  isCrowded: boolean;
  hasValues: boolean; // whether any layer has values
  onScreen(point: Vector3): { x: number; y: number } | null; // null: behind the camera
}

/** The label requests of a layer and its tiles. */
export function labelRequests(
  layerMesh: LayerMesh,
  viewport: LabelViewport,
  isSelected: boolean,
  item?: SceneItem,
  fault?: Fault,
  amount = "", // the number that it is coloured by
): LabelRequest[] {
  const { layer, size } = layerMesh.placed;
  const corner = (a: number, c: number): { x: number; y: number } | null =>
    viewport.onScreen(scenePoint(layerMesh.placed, a * (size[0] / 2 + 0.35), 0, c * (size[1] / 2 + 0.35)));
  const quad = [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)].filter((point) => point !== null);
  const tiles = tileRequests(layerMesh, viewport);
  if (quad.length < 4) return tiles;
  const [xs, ys] = [quad.map(({ x }) => x), quad.map(({ y }) => y)];
  const [wide, high] = [Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)];
  if (Math.max(wide, high) < MIN_NAMED_PX) return tiles;
  const emptyText = viewport.hasValues && !layerMesh.frame ? " · no values" : "";
  const isShort = (viewport.isCrowded || viewport.width < NARROW_PX) && !isSelected;
  const detail = amount ? amount : isShort ? "" : `${item?.detail ?? layer.shape.join(" × ")}${emptyText}`;
  const request = {
    key: layer.name,
    title: shortTitle(item?.title ?? layer.name),
    detail,
    canOpen: item?.canOpen ?? false,
    fault: fault?.text ?? "",
    spots: labelSpots(quad),
    isSelected,
    quad,
  };
  // From the bottom upwards: a stack leans to the right, so that a name that gives way upwards finds room.
  const weight = viewport.isCrowded ? wide : Math.max(...ys);
  return [{ ...request, weight: (isSelected ? 1e9 : fault ? 1e7 : 0) + weight }, ...tiles];
}

/** Shorten a layer's name: "…denselayer3.conv" for a long path. */
export function shortTitle(name: string): string {
  const cut =
    name.length > MAX_TITLE_LENGTH && /^[\w.]+$/.test(name) ? name.indexOf(".", name.length - MAX_TITLE_LENGTH) : -1;
  return cut < 0 ? name : `…${name.slice(cut + 1)}`;
}

// Candidate positions left, below and right of the plane, away from most of the picture.
export function labelSpots(quad: { x: number; y: number }[]): LabelSpot[] {
  const left = quad.reduce((best, corner) => (corner.x < best.x ? corner : best));
  const front = quad.reduce((best, corner) => (corner.y > best.y ? corner : best));
  const right = quad.reduce((best, corner) => (corner.x > best.x ? corner : best));
  return [
    { x: left.x - 6, y: left.y, align: "right" },
    ...[-6, -12, 8, -18, -24, -30, -36, -44, -54, 16].map((up) => ({
      x: left.x - 6,
      y: left.y + up,
      align: "right" as const,
    })),
    { x: left.x - 50, y: left.y, align: "right" },
    { x: left.x - 50, y: left.y - 12, align: "right" },
    { x: front.x, y: front.y + 3, align: "centre" },
    { x: right.x + 6, y: right.y, align: "left" },
    { x: right.x + 6, y: right.y + 18, align: "left" },
    { x: front.x + 20, y: front.y + 20, align: "left" },
    { x: right.x + 50, y: right.y + 10, align: "left" },
    { x: left.x - 110, y: left.y, align: "right" },
    { x: right.x + 110, y: right.y + 10, align: "left" },
    ...[14, 26, 38].map((down) => ({ x: right.x, y: front.y + down, align: "right" as const })), // below the buttons
    ...edgeSpots(quad),
  ];
}

// On a narrow screen slabs leave no room beside them: above their back edge, below their front edge.
function edgeSpots(quad: { x: number; y: number }[]): LabelSpot[] {
  const byHeight = [...quad].sort((one, other) => one.y - other.y);
  const along = ([one, other]: { x: number; y: number }[], share: number): { x: number; y: number } => ({ x: one.x + share * (other.x - one.x), y: one.y + share * (other.y - one.y) }); // prettier-ignore
  const [back, front] = [byHeight.slice(0, 2), byHeight.slice(2)].map((edge) => edge.sort((one, other) => one.x - other.x)); // prettier-ignore
  const shares = [0.15, 0.3, 0.5, 0.7, 0.85];
  return [
    ...shares.map((share) => ({ ...along(back, share), align: "above" as const })), // all on one side, if they can
    ...shares.map((share) => ({ ...along(front, share), align: "centre" as const })),
  ];
}

// "map 3" at the front edge of each tile that is large enough on the screen.
function tileRequests(layerMesh: LayerMesh, viewport: LabelViewport): LabelRequest[] {
  const { layer, size, units, grid } = layerMesh.placed;
  const sent = layerMesh.layout.sent;
  const wide = (layerMesh.cellSize()[0] * sent[3]) / viewport.worldPerPixel;
  const high = (layerMesh.cellSize()[1] * sent[2]) / viewport.worldPerPixel;
  if (
    layerMesh.layout.picture ||
    sent[0] * sent[1] === 1 ||
    wide < MIN_TILE_PX ||
    high < MIN_TILE_HEIGHT_PX ||
    layerMesh.frame?.head.raster
  )
    return [];
  const requests: LabelRequest[] = [];
  const tileCount = Math.min(sent[0] * sent[1], Math.ceil(units / (grid[2] * grid[3])));
  const half = (layerMesh.cellSize()[1] * 0.5) / size[1];
  for (let tile = 0; tile < tileCount && requests.length < MAX_TILES; tile++) {
    const front = ((tile + 1) * sent[2] - 1) * sent[3] + Math.floor(sent[3] / 2);
    const [left, back] = sentCellFraction(layerMesh.layout, front);
    const point = scenePoint(layerMesh.placed, (left - 0.5) * size[0], 0, (back + half - 0.5) * size[1]);
    const spot = viewport.onScreen(point);
    if (!spot || spot.x < 0 || spot.y < 0 || spot.x > viewport.width || spot.y > viewport.height) continue;
    const spots: LabelSpot[] = [{ ...spot, align: "centre" }];
    requests.push({ key: `${layer.name}\0${tile}`, title: tileName(layer, sent, tile), detail: "", weight: -tile, spots, isSelected: false }); // prettier-ignore
  }
  return requests;
}
