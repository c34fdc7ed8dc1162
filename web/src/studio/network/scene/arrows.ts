// Arrows between layers: their paths and styles. Each type of projection has its side, colour and dash.
import {
  BufferGeometry, ConeGeometry, CubicBezierCurve3, Float32BufferAttribute, Matrix4, Mesh, Quaternion, ShaderMaterial,
  TubeGeometry, Vector3, CustomBlending, GLSL3, OneFactor, OneMinusSrcAlphaFactor,
} from "three"; // prettier-ignore
import type { Net, PlacedLayer } from "../../messages";
import { parseColour } from "../values/colour_maps";
import { ARROW_FRAGMENT, ARROW_VERTEX } from "./shaders";

export interface ArrowStyle {
  title: string;
  dash: number; // in widths; 0: solid
  light: string;
  dark: string;
}

export const ARROW_STYLES: Record<string, ArrowStyle> = {
  forward: { title: "forward", dash: 0, light: "#7b8794", dark: "#8d99a8" },
  skip: { title: "skip", dash: 0, light: "#7c4dd6", dark: "#b093f5" },
  recurrent: { title: "recurrent", dash: 0, light: "#c2700a", dark: "#f0a33a" },
  lateral: { title: "lateral", dash: 6, light: "#0b8577", dark: "#35c4b2" },
  back: { title: "back", dash: 6, light: "#d1345b", dark: "#ff7d9c" },
};

const MARGIN = 0.4;
const POINTS_ALONG = 24;
const MANY_PROJECTIONS = 1500; // number of projections above which arrows get fewer segments

/** The style name of a projection's type; unknown types are drawn as forward. */
export function arrowType(type: string): string {
  return Object.hasOwn(ARROW_STYLES, type) ? type : "forward";
}

/** All arrows of a network as one mesh; null if there are none. */
export function buildArrows(net: Net, dark: boolean, radius: number): Mesh<BufferGeometry, ShaderMaterial> | null {
  const builder = new ArrowMeshBuilder(net.projections.length > MANY_PROJECTIONS ? 6 : 20, radius);
  for (const [path, style] of arrowsOf(net))
    builder.add(path, parseColour(dark ? style.dark : style.light), style.dash);
  return builder.mesh();
}

/** Points along the arrows, close enough together that what lies on an arrow has one of them. */
export function arrowPoints(net: Net): Vector3[] {
  return arrowsOf(net).flatMap(([path]) => path.getPoints(POINTS_ALONG));
}

function arrowsOf(net: Net): [CubicBezierCurve3, ArrowStyle][] {
  const layers = new Map(net.layers.map((placed) => [placed.layer.name, placed]));
  const arrows = new Map<string, [CubicBezierCurve3, ArrowStyle]>(); // projections of one type between the same layers share an arrow
  for (const { sender, receiver, type } of net.projections) {
    const [from, to, styleName] = [layers.get(sender), layers.get(receiver), arrowType(type)];
    const key = JSON.stringify([sender, receiver, styleName]);
    if (from && to && !arrows.has(key)) arrows.set(key, [arrowPath(from, to, styleName), ARROW_STYLES[styleName]]);
  }
  return [...arrows.values()];
}

/** The path of an arrow from the edge of one plane to the edge of another. */
export function arrowPath(from: PlacedLayer, to: PlacedLayer, type: string): CubicBezierCurve3 {
  if (from === to) return selfLoop(from);
  const [across, up, along] = [0, 1, 2].map((n) => to.place[n] - from.place[n]);
  if (type === "skip" && up > 0) return pathInFront(from, to);
  if (type === "forward" && up < 0) return pathBehind(from, to);
  if (Math.abs(across) > (from.size[0] + to.size[0]) / 2) return pathSideways(from, to, 0, Math.sign(across));
  if (Math.abs(along) > (from.size[1] + to.size[1]) / 2) return pathSideways(from, to, 1, Math.sign(along));
  return type === "forward" ? (pathUpwards(from, to) ?? pathAround(from, to, 1, 0.25)) : pathAround(from, to, -1, 0.6 + Math.min(3, Math.abs(up) * 0.18)); // prettier-ignore
}

// In a leaning stack: from the right edge up to the front edge of the layer above; null if that edge is out of reach.
function pathUpwards(from: PlacedLayer, to: PlacedLayer): CubicBezierCurve3 | null {
  const right = from.place[0] + from.size[0] / 2 + MARGIN;
  const x = right + 0.7;
  if (Math.abs(x - to.place[0]) > to.size[0] * 0.45) return null;
  const front = to.place[2] + to.size[1] / 2 + MARGIN;
  const start = new Vector3(right, from.place[1], from.place[2]);
  const bend = new Vector3(x, from.place[1], from.place[2]);
  const below = new Vector3(x, from.place[1] + (to.place[1] - from.place[1]) * 0.45, front);
  return new CubicBezierCurve3(start, bend, below, new Vector3(x, to.place[1], front));
}

// Past the layers in between: along the front of the stack, below and to the right of them.
function pathInFront(from: PlacedLayer, to: PlacedLayer): CubicBezierCurve3 {
  const front = ({ place, size }: PlacedLayer): number => place[2] + size[1] / 2 + MARGIN;
  const [start, end] = [from.place[0] + from.size[0] * 0.3, to.place[0] + to.size[0] * 0.3];
  const lane = Math.max(front(from), front(to)) + 1.2;
  const outermost = Math.max(end, from.place[0] + from.size[0] / 2 + 2);
  const rise = to.place[1] - from.place[1];
  return new CubicBezierCurve3(
    new Vector3(start, from.place[1], front(from)),
    new Vector3(start + (outermost - start) * 0.7, from.place[1] - rise * 0.05, lane),
    new Vector3(outermost, from.place[1] + rise * 0.3, lane),
    new Vector3(end, to.place[1], front(to)),
  );
}

// From edge to edge on one side; all but plain forward arrows run on the left, behind the names.
function pathAround(from: PlacedLayer, to: PlacedLayer, side: number, bulge: number): CubicBezierCurve3 {
  const edge = (layer: PlacedLayer): number => layer.place[0] + side * (layer.size[0] / 2 + MARGIN);
  const outermost = (side > 0 ? Math.max(edge(from), edge(to)) : Math.min(edge(from), edge(to))) + side * bulge;
  const zOf = (layer: PlacedLayer): number => layer.place[2] - (side < 0 ? layer.size[1] * 0.3 : 0);
  const point = (x: number, layer: PlacedLayer): Vector3 => new Vector3(x, layer.place[1], zOf(layer));
  return new CubicBezierCurve3(
    point(edge(from), from),
    point(outermost, from),
    point(outermost, to),
    point(edge(to), to),
  );
}

// To the foot of the next stack: behind the layers, which may cover it.
function pathBehind(from: PlacedLayer, to: PlacedLayer): CubicBezierCurve3 {
  const backEdge = (layer: PlacedLayer): number => layer.place[2] - layer.size[1] / 2 - MARGIN;
  const farthest = Math.min(backEdge(from), backEdge(to)) - 2;
  const point = ({ place: [x, y] }: PlacedLayer, z: number): Vector3 => new Vector3(x, y, z);
  return new CubicBezierCurve3(
    point(from, backEdge(from)),
    point(from, farthest),
    point(to, farthest),
    point(to, backEdge(to)),
  );
}

// Side by side: from edge to edge, in a low arch.
function pathSideways(from: PlacedLayer, to: PlacedLayer, axis: 0 | 1, sign: number): CubicBezierCurve3 {
  const place = (layer: PlacedLayer, side: number): Vector3 => {
    const [x, y, z] = layer.place;
    const reach = side * (layer.size[axis] / 2 + MARGIN);
    return axis === 0 ? new Vector3(x + reach, y, z) : new Vector3(x, y, z + reach);
  };
  const [start, end] = [place(from, sign), place(to, -sign)];
  const bend = start.distanceTo(end) * 0.35;
  const lift = (point: Vector3, side: number): Vector3 => {
    const lifted = point.clone().add(new Vector3(0, 0.3, 0));
    return axis === 0 ? lifted.setX(point.x + side * bend) : lifted.setZ(point.z + side * bend);
  };
  return new CubicBezierCurve3(start, lift(start, sign), lift(end, -sign), end);
}

// A self loop: out of the left edge and back into it.
function selfLoop({ place: [x, y, z], size: [width, depth] }: PlacedLayer): CubicBezierCurve3 {
  const [edge, half] = [x - width / 2 - MARGIN, Math.min(depth * 0.2, 1)];
  const point = (right: number, front: number): Vector3 => new Vector3(right, y, z - depth * 0.25 + front);
  const outermost = edge - Math.max(1.2, half * 1.6);
  return new CubicBezierCurve3(
    point(edge, -half),
    point(outermost, -half * 1.3),
    point(outermost, half * 1.3),
    point(edge, half),
  );
}

class ArrowMeshBuilder {
  private readonly positions: number[] = [];
  private readonly along: number[] = [];
  private readonly tints: number[] = [];
  private readonly dashes: number[] = [];
  private readonly index: number[] = [];

  constructor(
    private readonly corners: number,
    private readonly radius: number,
  ) {}

  add(curve: CubicBezierCurve3, tint: number[], dash: number): void {
    const length = curve.getLength();
    const head = Math.min(9.5 * this.radius, length * 0.4);
    const tube = new TubeGeometry(curve, this.corners, this.radius, 5, false);
    const [end, tangent] = [curve.getPoint(1), curve.getTangent(1)];
    const cone = new ConeGeometry(head * 0.36, head, 10);
    const rotation = new Quaternion().setFromUnitVectors(new Vector3(0, 1, 0), tangent);
    cone.applyMatrix4(new Matrix4().compose(end.addScaledVector(tangent, -head / 2), rotation, new Vector3(1, 1, 1)));
    this.append(tube, tint, dash, length / this.radius);
    this.append(cone, tint, 0, 0);
  }

  mesh(): Mesh<BufferGeometry, ShaderMaterial> | null {
    if (!this.index.length) return null;
    const geometry = new BufferGeometry();
    geometry.setIndex(this.index);
    geometry.setAttribute("position", new Float32BufferAttribute(this.positions, 3));
    geometry.setAttribute("along", new Float32BufferAttribute(this.along, 1));
    geometry.setAttribute("dash", new Float32BufferAttribute(this.dashes, 1));
    geometry.setAttribute("tint", new Float32BufferAttribute(this.tints, 3));
    const mesh = new Mesh(geometry, arrowMaterial());
    mesh.frustumCulled = false;
    return mesh;
  }

  private append(geometry: BufferGeometry, tint: number[], dash: number, length: number): void {
    const first = this.positions.length / 3;
    const [position, uv] = [geometry.getAttribute("position"), geometry.getAttribute("uv")];
    for (let n = 0; n < position.count; n++) {
      this.positions.push(position.getX(n), position.getY(n), position.getZ(n));
      this.along.push(uv.getX(n) * length);
      this.tints.push(...tint.map((part) => part / 255));
      this.dashes.push(dash);
    }
    const corners = geometry.getIndex()!;
    for (let n = 0; n < corners.count; n++) this.index.push(first + corners.getX(n));
    geometry.dispose();
  }
}

function arrowMaterial(): ShaderMaterial {
  return new ShaderMaterial({
    vertexShader: ARROW_VERTEX, fragmentShader: ARROW_FRAGMENT, glslVersion: GLSL3, transparent: true,
    blending: CustomBlending, blendSrc: OneFactor, blendDst: OneMinusSrcAlphaFactor, premultipliedAlpha: true,
  }); // prettier-ignore
}
