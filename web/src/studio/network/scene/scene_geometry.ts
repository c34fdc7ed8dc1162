// What the scene has to know of its browser and of its layers.
import { Vector3 } from "three";
import type { Pose } from "./orbit_camera";
import type { LayerView } from "./layer_mesh";

/** The corners of a box. */
export const CORNERS = [-1, 1].flatMap((a) => [-1, 1].flatMap((b) => [-1, 1].map((c) => [a, b, c] as const)));

/** Whether this browser draws 3D, and whether it does so without a graphics card. */
export function capable(): { webgl: boolean; software: boolean } {
  const context = document.createElement("canvas").getContext("webgl2");
  if (!context) return { webgl: false, software: true };
  const info = context.getExtension("WEBGL_debug_renderer_info");
  const name = String(context.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : context.RENDERER));
  context.getExtension("WEBGL_lose_context")?.loseContext();
  return { webgl: true, software: /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name) };
}

/** On the way from one pose to another. */
export function between(one: Pose, other: Pose, share: number): Pose {
  const mix = (name: keyof Pose): number => one[name] + (other[name] - one[name]) * share;
  return { x: mix("x"), y: mix("y"), z: mix("z"), azimuth: mix("azimuth"), elevation: mix("elevation"), distance: mix("distance") }; // prettier-ignore
}

/** How large the box around points is. */
export function reachOf(points: Vector3[]): number {
  const [least, most] = [new Vector3(Infinity, Infinity, Infinity), new Vector3(-Infinity, -Infinity, -Infinity)];
  for (const point of points) [least.min(point), most.max(point)];
  return points.length ? Math.max(1, least.distanceTo(most)) : 10;
}

/** The least height between two layers that lie above each other. */
export function gapAbove(views: LayerView[]): number {
  const heights = [...new Set(views.map(({ placed }) => placed.place[1]))].sort((one, other) => one - other);
  let least = Infinity;
  for (let n = 1; n < heights.length; n++) if (heights[n] - heights[n - 1] > 0.2) least = Math.min(least, heights[n] - heights[n - 1]); // prettier-ignore
  return Number.isFinite(least) ? least : 4;
}

/** What is farther away is drawn first: planes can be seen through. */
export function farFirst(views: LayerView[], eye: Vector3): LayerView[] {
  const away = ({ placed: { place } }: LayerView): number => eye.distanceTo(new Vector3(...place));
  const sorted = views.map((view) => ({ view, away: away(view) })).sort((one, other) => other.away - one.away);
  return sorted.map(({ view }) => view);
}
