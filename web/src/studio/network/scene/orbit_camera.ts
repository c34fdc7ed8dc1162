// The orbit camera: a target point, two angles and a distance.
import { Matrix4, PerspectiveCamera, Vector3 } from "three";

export interface Pose {
  x: number; // the target point
  y: number;
  z: number;
  azimuth: number; // in radians; 0 is the front
  elevation: number; // in radians; positive is above
  distance: number;
}

const FIELD_OF_VIEW = 14; // degrees, along the shorter side: so little perspective that the nearest slabs hide no others
const MAX_ELEVATION = Math.PI / 2 - 0.01;
const FIT_MARGIN = 0.94; // fraction of the window that a fitted scene takes

/** A camera that orbits a point. */
export class OrbitCamera {
  readonly camera = new PerspectiveCamera(FIELD_OF_VIEW, 1, 0.1, 1000);
  pose: Pose = { x: 0, y: 0, z: 0, azimuth: 0.3, elevation: 0.4, distance: 30 };
  sceneSize = 100; // the scene's size in world units; limits how near and how far the camera may go
  private width = 1;
  private height = 1;

  constructor(private readonly onChange: () => void) {}

  resize(width: number, height: number): void {
    [this.width, this.height] = [Math.max(1, width), Math.max(1, height)];
    this.camera.aspect = this.width / this.height;
    this.set({});
  }

  /** Change the pose. */
  set(part: Partial<Pose>): void {
    const pose = { ...this.pose, ...part };
    pose.elevation = Math.max(-MAX_ELEVATION, Math.min(MAX_ELEVATION, pose.elevation));
    pose.distance = this.clampDistance(pose.distance);
    this.pose = pose;
    this.applyPose(this.camera, pose);
    this.onChange();
  }

  /** Rotate, by pixels. */
  turn(right: number, down: number): void {
    const { azimuth, elevation } = this.pose;
    this.set({ azimuth: azimuth - right * 0.006, elevation: elevation + down * 0.006 });
  }

  /** Pan, by pixels. */
  pan(right: number, down: number): void {
    const scale = this.worldPerPixel();
    const [sideways, up] = [new Vector3(), new Vector3()];
    this.camera.matrixWorld.extractBasis(sideways, up, new Vector3());
    const { x, y, z } = this.pose;
    const target = new Vector3(x, y, z).addScaledVector(sideways, -right * scale).addScaledVector(up, down * scale);
    this.set({ x: target.x, y: target.y, z: target.z });
  }

  /** Zoom in (factor below 1); the given point, by default the target, stays fixed in the window. */
  zoom(factor: number, point = new Vector3(this.pose.x, this.pose.y, this.pose.z)): void {
    const { x, y, z, distance } = this.pose;
    const newDistance = this.clampDistance(distance * factor);
    const target = new Vector3(x, y, z)
      .sub(point)
      .multiplyScalar(newDistance / distance)
      .add(point);
    this.set({ ...xyz(target), distance: newDistance });
  }

  /** The pose with these angles that shows all points as large as possible. */
  fitPose(
    points: Vector3[],
    azimuth: number,
    elevation: number,
    inset = { left: 0, right: 0, top: 0, bottom: 0 },
  ): Pose {
    const middle = centreOf(points);
    let pose: Pose = { ...xyz(middle), azimuth, elevation, distance: this.sceneSize * 2 };
    const camera = this.camera.clone();
    const inverse = new Matrix4();
    for (let round = 0; round < 12; round++) {
      this.applyPose(camera, pose);
      inverse.copy(camera.matrixWorld).invert();
      pose = this.refineFit(
        pose,
        camera,
        points.map((point) => point.clone().applyMatrix4(inverse)),
        inset,
      );
    }
    return pose;
  }

  /** World units per pixel at the target. */
  worldPerPixel(): number {
    return (2 * this.pose.distance * Math.tan((this.camera.fov * Math.PI) / 360)) / this.height;
  }

  private clampDistance(distance: number): number {
    return Math.max(this.sceneSize / 500, Math.min(this.sceneSize * 12, distance));
  }

  // Each point needs a distance at which it is just inside the window; the largest one wins.
  private refineFit(pose: Pose, camera: PerspectiveCamera, viewPoints: Vector3[], inset: Inset): Pose {
    const up = Math.tan((camera.fov * Math.PI) / 360);
    const side = up * camera.aspect;
    const [wide, high] = [1 - (inset.left + inset.right) / this.width, 1 - (inset.top + inset.bottom) / this.height];
    const [across, along] = [extent(viewPoints, "x", pose.distance), extent(viewPoints, "y", pose.distance)];
    const neededDistance = Math.max(
      (across.most - across.least) / 2 / (side * FIT_MARGIN * wide),
      (along.most - along.least) / 2 / (up * FIT_MARGIN * high),
    );
    const [right, above] = [new Vector3(), new Vector3()];
    camera.matrixWorld.extractBasis(right, above, new Vector3());
    const offset = {
      x: (across.most + across.least) / 2 - (side * pose.distance * (inset.left - inset.right)) / this.width,
      y: (along.most + along.least) / 2 - (up * pose.distance * (inset.bottom - inset.top)) / this.height,
    };
    const target = new Vector3(pose.x, pose.y, pose.z)
      .addScaledVector(right, offset.x)
      .addScaledVector(above, offset.y);
    return { ...pose, ...xyz(target), distance: Math.max(1e-3, neededDistance) };
  }

  private applyPose(camera: PerspectiveCamera, { x, y, z, azimuth, elevation, distance }: Pose): void {
    const flat = Math.cos(elevation) * distance;
    camera.fov = camera.aspect >= 1 ? FIELD_OF_VIEW : 2 * Math.atan(Math.tan((FIELD_OF_VIEW * Math.PI) / 360) / camera.aspect) * (180 / Math.PI); // prettier-ignore
    camera.fov = Math.min(60, camera.fov);
    camera.position.set(x + flat * Math.sin(azimuth), y + distance * Math.sin(elevation), z + flat * Math.cos(azimuth));
    camera.near = Math.max(distance / 200, distance - this.sceneSize * 3);
    camera.far = distance + this.sceneSize * 3;
    camera.lookAt(x, y, z);
    camera.updateProjectionMatrix();
    camera.updateMatrixWorld();
  }
}

type Inset = { left: number; right: number; top: number; bottom: number };

// How far points extend to both sides, projected to the target's distance.
function extent(viewPoints: Vector3[], axis: "x" | "y", distance: number): { least: number; most: number } {
  let [least, most] = [Infinity, -Infinity];
  for (const point of viewPoints) {
    const projected = (point[axis] / Math.max(1e-6, -point.z)) * distance;
    [least, most] = [Math.min(least, projected), Math.max(most, projected)];
  }
  return { least, most };
}

function centreOf(points: Vector3[]): Vector3 {
  const [lowest, highest] = [new Vector3(Infinity, Infinity, Infinity), new Vector3(-Infinity, -Infinity, -Infinity)];
  for (const point of points) {
    lowest.min(point);
    highest.max(point);
  }
  return points.length ? lowest.add(highest).multiplyScalar(0.5) : new Vector3();
}

function xyz({ x, y, z }: Vector3): { x: number; y: number; z: number } {
  return { x, y, z };
}
