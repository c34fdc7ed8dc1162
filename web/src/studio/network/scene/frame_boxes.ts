// Frames around the members of open modules: thin boxes, each with its title.
import {
  BufferGeometry,
  Color,
  Float32BufferAttribute,
  Group,
  LineBasicMaterial,
  LineSegments,
  type Vector3,
} from "three";
import { frameSections, outlineSegments, sectionCorner, type FrameSection } from "./frame_outline";
import type { SceneFrame } from "../fold/visible_net";
import type { LayerMesh, ScenePalette } from "./layer_mesh";
import type { LabelRequest } from "./labels";

const MARGIN = 0.7; // between a frame and what it holds
const MARGIN_PER_LEVEL = 0.45; // more for a frame with frames inside
/** The frames of a scene. */
export class FrameBoxes {
  readonly group = new Group();
  private frames: readonly SceneFrame[] = [];
  private readonly boxes = new Map<SceneFrame, FrameSection[]>();

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
      const sections = frameSections(members, MARGIN + MARGIN_PER_LEVEL * (deepest - frame.depth));
      this.boxes.set(frame, sections);
      this.group.add(outline(sections, palette.accent, 0.35 / (1 + 2 * (deepest - frame.depth)))); // what is around stands back
    }
  }

  /** A title for each frame, at its upper left corner. */
  labelRequests(onScreen: (point: Vector3) => { x: number; y: number } | null, isShort: boolean): LabelRequest[] {
    return [...this.boxes].flatMap(([{ node, depth }, sections]) => {
      const [bottom, top] = [sections[0], sections[sections.length - 1]];
      const corners = [sectionCorner(top, 0), sectionCorner(top, 4), sectionCorner(bottom, 5), sectionCorner(top, 5)];
      const [corner, back, low, right] = corners.map(onScreen);
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

  /** The corners of the frames around all of some layers, for a camera that is to have them in view. */
  corners(layers: readonly string[]): Vector3[] {
    const shown = new Set(layers);
    const whole = [...this.boxes].filter(([{ members }]) => members.every((name) => shown.has(name)));
    return whole.flatMap(([, sections]) => outlineSegments(sections));
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

function outline(
  sections: readonly FrameSection[],
  colour: string,
  opacity: number,
): LineSegments<BufferGeometry, LineBasicMaterial> {
  const points = outlineSegments(sections).flatMap((point) => point.toArray());
  const geometry = new BufferGeometry().setAttribute("position", new Float32BufferAttribute(points, 3));
  const material = new LineBasicMaterial({ color: new Color(colour), transparent: true, opacity, depthWrite: false });
  return new LineSegments(geometry, material);
}
