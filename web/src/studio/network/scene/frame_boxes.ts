// Frames around the members of open modules: thin boxes, each with its title.
import { BufferGeometry, Color, Float32BufferAttribute, Group, LineBasicMaterial, LineSegments, Vector3 } from "three";
import { extentOf, type PosedLayer } from "./layer_pose";
import type { SceneFrame } from "../fold/visible_net";
import type { LayerMesh, ScenePalette } from "./layer_mesh";
import type { LabelRequest } from "./labels";

const MARGIN = 0.7; // between a frame and what it holds
const MARGIN_PER_LEVEL = 0.45; // more for a frame with frames inside
// Pairs of corners, by their bits: right, top, front.
const EDGES = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((corner) =>
  [1, 2, 4].filter((bit) => !(corner & bit)).map((bit) => [corner, corner | bit]),
);

/** A box that leans as the stack does: its lower and upper faces are rectangles of one size. */
interface LeaningBox {
  lower: Vector3; // centre of the lower face
  upper: Vector3;
  half: Vector3; // half of the faces' width and depth
}

/** The frames of a scene. */
export class FrameBoxes {
  readonly group = new Group();
  private frames: readonly SceneFrame[] = [];
  private readonly boxes = new Map<SceneFrame, LeaningBox>();

  setFrames(frames: readonly SceneFrame[]): void {
    this.frames = frames;
    this.clear();
  }

  /** Draw the frames around where the layers are now. */
  update(layers: ReadonlyMap<string, LayerMesh>, palette: ScenePalette): void {
    this.clear();
    const deepest = Math.max(0, ...this.frames.map(({ depth }) => depth));
    for (const frame of this.frames) {
      const members = frame.members.flatMap((name) => layers.get(name)?.placed ?? []);
      if (!members.length) continue;
      const box = boxAround(members, MARGIN + MARGIN_PER_LEVEL * (deepest - frame.depth));
      this.boxes.set(frame, box);
      this.group.add(outline(box, palette.accent, 0.35 / (1 + 2 * (deepest - frame.depth)))); // what is around stands back
    }
  }

  /** A title for each frame, at its upper left corner. */
  labelRequests(onScreen: (point: Vector3) => { x: number; y: number } | null, isShort: boolean): LabelRequest[] {
    return [...this.boxes].flatMap(([{ node, depth }, box]) => {
      const [corner, back, low, right] = [2, 6, 5, 7].map((at) => onScreen(cornerOf(box, at)));
      if (!corner || !back || !low || !right) return [];
      const above = [0, -14, 14, -28].flatMap((down) =>
        [corner, back].flatMap(({ x, y }) => [
          { x: x - 4, y: y - 10 + down, align: "right" as const },
          { x, y: y - 12 + down, align: "left" as const },
        ]),
      );
      // Where names fill the left side, below the frame on the right, where a leaning stack leaves room.
      const beside = [low, right].flatMap(({ x, y }) =>
        [0, 14].map((down) => ({ x: x + 6, y: y + down, align: "left" as const })),
      );
      const spots = [...above, ...beside];
      const title = node.count > 1 ? `${node.title} ×${node.count}` : node.title;
      return [
        {
          key: `${node.key}\0frame`,
          title,
          detail: isShort ? "" : node.kind,
          weight: -1 - depth,
          spots,
          isSelected: false,
          isFrame: true,
        },
      ];
    });
  }

  private clear(): void {
    this.boxes.clear();
    for (const child of [...this.group.children] as LineSegments<BufferGeometry, LineBasicMaterial>[]) {
      child.geometry.dispose();
      child.material.dispose();
      this.group.remove(child);
    }
  }
}

function boxAround(members: readonly PosedLayer[], margin: number): LeaningBox {
  const heights = members.map(({ place }) => place[1]);
  const [low, high] = [Math.min(...heights), Math.max(...heights)];
  const centreAt = (height: number): Vector3 => {
    const level = members.filter(({ place }) => place[1] === height);
    const side = (axis: 0 | 2, sign: number): number =>
      Math.max(...level.map((member) => sign * member.place[axis] + reach(member, axis))) * sign;
    return new Vector3((side(0, 1) + side(0, -1)) / 2, height, (side(2, 1) + side(2, -1)) / 2);
  };
  const [lower, upper] = [centreAt(low), centreAt(high)];
  const half = new Vector3();
  for (const member of members) {
    const { place } = member;
    const middle = lower.clone().lerp(upper, high > low ? (place[1] - low) / (high - low) : 0);
    half.max(new Vector3(Math.abs(place[0] - middle.x) + reach(member, 0), 0, Math.abs(place[2] - middle.z) + reach(member, 2))); // prettier-ignore
  }
  half.addScalar(margin);
  lower.y -= margin;
  upper.y = Math.max(...members.map((member) => member.place[1] + extentOf(member).tall)) + margin;
  return { lower, upper, half };
}

// Half of a layer's width (0) or depth (2).
function reach(member: PosedLayer, axis: 0 | 2): number {
  const { wide, deep } = extentOf(member);
  return (axis ? deep : wide) / 2;
}

function cornerOf({ lower, upper, half }: LeaningBox, corner: number): Vector3 {
  const centre = corner & 2 ? upper : lower;
  return new Vector3(centre.x + (corner & 1 ? half.x : -half.x), centre.y, centre.z + (corner & 4 ? half.z : -half.z));
}

function outline(box: LeaningBox, colour: string, opacity: number): LineSegments<BufferGeometry, LineBasicMaterial> {
  const points = EDGES.flatMap((edge) => edge.flatMap((corner) => cornerOf(box, corner).toArray()));
  const geometry = new BufferGeometry().setAttribute("position", new Float32BufferAttribute(points, 3));
  const material = new LineBasicMaterial({ color: new Color(colour), transparent: true, opacity, depthWrite: false });
  return new LineSegments(geometry, material);
}
