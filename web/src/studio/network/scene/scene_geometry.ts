// Geometry helpers of the scene, and detection of WebGL.
import { Vector3 } from "three";
import type { LayerMesh } from "./layer_mesh";

/** The corners of a box. */
export const CORNERS = [-1, 1].flatMap((a) => [-1, 1].flatMap((b) => [-1, 1].map((c) => [a, b, c] as const)));

/** Whether this browser supports WebGL 2, and whether it renders in software. */
export function detectWebgl(): { webgl: boolean; software: boolean } {
  const context = document.createElement("canvas").getContext("webgl2");
  if (!context) return { webgl: false, software: true };
  const info = context.getExtension("WEBGL_debug_renderer_info");
  const name = String(context.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : context.RENDERER));
  context.getExtension("WEBGL_lose_context")?.loseContext();
  return { webgl: true, software: /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name) };
}

/** The diagonal of the bounding box of points. */
export function diagonalOf(points: Vector3[]): number {
  const [lowest, highest] = [new Vector3(Infinity, Infinity, Infinity), new Vector3(-Infinity, -Infinity, -Infinity)];
  for (const point of points) {
    lowest.min(point);
    highest.max(point);
  }
  return points.length ? Math.max(1, lowest.distanceTo(highest)) : 10;
}

/** The smallest vertical gap between two levels of layers. */
export function minLevelGap(views: LayerMesh[]): number {
  const heights = [...new Set(views.map(({ placed }) => placed.place[1]))].sort((first, second) => first - second);
  let smallest = Infinity;
  for (let n = 1; n < heights.length; n++) if (heights[n] - heights[n - 1] > 0.2) smallest = Math.min(smallest, heights[n] - heights[n - 1]); // prettier-ignore
  return Number.isFinite(smallest) ? smallest : 4;
}

/** Sort by distance, farthest first: planes are translucent. */
export function sortFarFirst(views: LayerMesh[], eye: Vector3): LayerMesh[] {
  const distance = ({ group }: LayerMesh): number => eye.distanceTo(group.position);
  const sorted = views
    .map((view) => ({ view, distance: distance(view) }))
    .sort((first, second) => second.distance - first.distance);
  return sorted.map(({ view }) => view);
}
