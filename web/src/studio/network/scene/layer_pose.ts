// How a layer's plane lies in the scene: flat on its level, or upright on it, facing the camera, as attention heads do.
import { Ray, Vector3 } from "three";
import type { PlacedLayer } from "../../messages";

const STANDING_DEPTH = 0.5; // of an upright plane, for what is placed around it

/** A placed layer that may stand upright on its place. */
export type PosedLayer = PlacedLayer & { stands?: boolean };

/** The point of the scene at a point of the plane: to the right, off the plane, and towards its front edge. */
export function scenePoint({ place, size, stands }: PosedLayer, right: number, off: number, front: number): Vector3 {
  const [x, y, z] = place;
  return stands ? new Vector3(x + right, y + size[1] / 2 - front, z + off) : new Vector3(x + right, y + off, z + front);
}

/** A ray of the scene as the plane sees it; distances along it stay the same. */
export function rayOnPlane({ place, size, stands }: PosedLayer, { origin, direction }: Ray): Ray {
  const moved = origin.clone().sub(new Vector3(...place));
  if (!stands) return new Ray(moved, direction.clone());
  const turn = ({ x, y, z }: Vector3): Vector3 => new Vector3(x, z, -y);
  moved.y -= size[1] / 2;
  return new Ray(turn(moved), turn(direction));
}

/** Width, height and depth of what a layer takes up above its place. */
export function extentOf({ size, stands }: PosedLayer): { wide: number; tall: number; deep: number } {
  return { wide: size[0], tall: stands ? size[1] : 0, deep: stands ? STANDING_DEPTH : size[1] };
}

/** The layer as something flat on its level, for arrows. */
export function footprint<Layer extends PosedLayer>(placed: Layer): Layer {
  return placed.stands ? { ...placed, size: [placed.size[0], STANDING_DEPTH] } : placed;
}
