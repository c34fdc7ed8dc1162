// What the scene has to know of its browser and of its layers.
import { Vector3 } from "three";
import type { Pose } from "./orbit_camera";
import type { LayerMesh } from "./layer_mesh";

/** The corners of a box. */
export const CORNERS = [-1, 1].flatMap((a) => [-1, 1].flatMap((b) => [-1, 1].map((c) => [a, b, c] as const)));

/** Whether this browser draws 3D, and whether it does so without a graphics card. */
export function detectWebgl(): { webgl: boolean; software: boolean } {
  const context = document.createElement("canvas").getContext("webgl2");
  if (!context) return { webgl: false, software: true };
  const info = context.getExtension("WEBGL_debug_renderer_info");
  const name = String(context.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : context.RENDERER));
  context.getExtension("WEBGL_lose_context")?.loseContext();
  return { webgl: true, software: /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name) };
}

/** On the way from one pose to another. */
export function interpolatePose(start: Pose, end: Pose, progress: number): Pose {
  const mix = (name: keyof Pose): number => start[name] + (end[name] - start[name]) * progress;
  return { x: mix("x"), y: mix("y"), z: mix("z"), azimuth: mix("azimuth"), elevation: mix("elevation"), distance: mix("distance") }; // prettier-ignore
}

/** How large the box around points is. */
export function diagonalOf(points: Vector3[]): number {
  const [lowest, highest] = [new Vector3(Infinity, Infinity, Infinity), new Vector3(-Infinity, -Infinity, -Infinity)];
  for (const point of points) [lowest.min(point), highest.max(point)];
  return points.length ? Math.max(1, lowest.distanceTo(highest)) : 10;
}

/** The least height between two layers that lie above each other. */
export function minLevelGap(views: LayerMesh[]): number {
  const heights = [...new Set(views.map(({ placed }) => placed.place[1]))].sort((first, second) => first - second);
  let smallest = Infinity;
  for (let n = 1; n < heights.length; n++) if (heights[n] - heights[n - 1] > 0.2) smallest = Math.min(smallest, heights[n] - heights[n - 1]); // prettier-ignore
  return Number.isFinite(smallest) ? smallest : 4;
}

/** What is farther away is drawn first: planes can be seen through. */
export function sortFarFirst(views: LayerMesh[], eye: Vector3): LayerMesh[] {
  const distance = ({ placed: { place } }: LayerMesh): number => eye.distanceTo(new Vector3(...place));
  const sorted = views.map((view) => ({ view, distance: distance(view) })).sort((first, second) => second.distance - first.distance);
  return sorted.map(({ view }) => view);
}
