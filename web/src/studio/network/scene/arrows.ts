// Arrows between layers: where they run and what they look like. Each type of projection has its side, colour and dash.
import {
  BufferGeometry, ConeGeometry, CubicBezierCurve3, Float32BufferAttribute, Matrix4, Mesh, Quaternion, ShaderMaterial,
  TubeGeometry, Vector3, CustomBlending, GLSL3, OneFactor, OneMinusSrcAlphaFactor,
} from "three"; // prettier-ignore
import type { Net, PlacedLayer } from "../../messages";
import { parts } from "../values/colour_maps";
import { ARROW_FRAGMENT, ARROW_VERTEX } from "./shaders";

export interface Style {
  title: string;
  dash: number; // in widths; 0: none
  light: string;
  dark: string;
}

export const STYLES: Record<string, Style> = {
  forward: { title: "forward", dash: 0, light: "#7b8794", dark: "#8d99a8" },
  skip: { title: "skip", dash: 0, light: "#7c4dd6", dark: "#b093f5" },
  recurrent: { title: "recurrent", dash: 0, light: "#c2700a", dark: "#f0a33a" },
  lateral: { title: "lateral", dash: 6, light: "#0b8577", dark: "#35c4b2" },
  back: { title: "back", dash: 6, light: "#d1345b", dark: "#ff7d9c" },
};

const MARGIN = 0.4;
const MANY = 1500; // projections beyond which each is drawn with fewer corners

/** A type of projection as it is drawn: one that has no look of its own looks as forward does. */
export function typeOf(type: string): string {
  return Object.hasOwn(STYLES, type) ? type : "forward";
}

/** All arrows of a network as one mesh; null where there are none. */
export function arrowsOf(net: Net, dark: boolean, thin: number): Mesh<BufferGeometry, ShaderMaterial> | null {
  const layers = new Map(net.layers.map((placed) => [placed.layer.name, placed]));
  const gathered = new Gathered(net.projections.length > MANY ? 6 : 20, thin);
  const drawn = new Set<string>(); // two projections of a kind between the same layers are one arrow
  for (const { sender, receiver, type } of net.projections) {
    const [from, to] = [layers.get(sender), layers.get(receiver)];
    const drawnAs = typeOf(type);
    const key = JSON.stringify([sender, receiver, drawnAs]);
    if (!from || !to || drawn.has(key)) continue;
    drawn.add(key);
    const style = STYLES[drawnAs];
    gathered.add(pathOf(from, to, drawnAs), parts(dark ? style.dark : style.light), style.dash);
  }
  return gathered.mesh();
}

/** The way of an arrow from the edge of one plane to the edge of another. */
export function pathOf(from: PlacedLayer, to: PlacedLayer, type: string): CubicBezierCurve3 {
  if (from === to) return loop(from);
  const [across, up, along] = [0, 1, 2].map((n) => to.place[n] - from.place[n]);
  if (type === "forward" && up < 0) return behind(from, to);
  if (Math.abs(across) > (from.size[0] + to.size[0]) / 2) return sideways(from, to, 0, Math.sign(across));
  if (Math.abs(along) > (from.size[1] + to.size[1]) / 2) return sideways(from, to, 1, Math.sign(along));
  return type === "forward" ? (upwards(from, to) ?? around(from, to, 1, 0.25)) : around(from, to, -1, 0.6 + Math.min(3, Math.abs(up) * 0.18)); // prettier-ignore
}

// Where a stack leans: from the right edge up to the front edge of the layer above; null where that edge is elsewhere.
function upwards(from: PlacedLayer, to: PlacedLayer): CubicBezierCurve3 | null {
  const right = from.place[0] + from.size[0] / 2 + MARGIN;
  const x = right + 0.7;
  if (Math.abs(x - to.place[0]) > to.size[0] * 0.45) return null;
  const front = to.place[2] + to.size[1] / 2 + MARGIN;
  const start = new Vector3(right, from.place[1], from.place[2]);
  const bend = new Vector3(x, from.place[1], from.place[2]);
  const below = new Vector3(x, from.place[1] + (to.place[1] - from.place[1]) * 0.45, front);
  return new CubicBezierCurve3(start, bend, below, new Vector3(x, to.place[1], front));
}

// From edge to edge on one side; what is not plain forward runs on the left, behind the names.
function around(from: PlacedLayer, to: PlacedLayer, side: number, bulge: number): CubicBezierCurve3 {
  const edge = (layer: PlacedLayer): number => layer.place[0] + side * (layer.size[0] / 2 + MARGIN);
  const out = (side > 0 ? Math.max(edge(from), edge(to)) : Math.min(edge(from), edge(to))) + side * bulge;
  const back = (layer: PlacedLayer): number => layer.place[2] - (side < 0 ? layer.size[1] * 0.3 : 0);
  const point = (x: number, layer: PlacedLayer): Vector3 => new Vector3(x, layer.place[1], back(layer));
  return new CubicBezierCurve3(point(edge(from), from), point(out, from), point(out, to), point(edge(to), to));
}

// To the foot of the next stack: behind the layers, which hide it where they are in front of it.
function behind(from: PlacedLayer, to: PlacedLayer): CubicBezierCurve3 {
  const back = (layer: PlacedLayer): number => layer.place[2] - layer.size[1] / 2 - MARGIN;
  const far = Math.min(back(from), back(to)) - 2;
  const point = ({ place: [x, y] }: PlacedLayer, z: number): Vector3 => new Vector3(x, y, z);
  return new CubicBezierCurve3(point(from, back(from)), point(from, far), point(to, far), point(to, back(to)));
}

// Beside each other: from edge to edge, in a low arch.
function sideways(from: PlacedLayer, to: PlacedLayer, axis: 0 | 1, sign: number): CubicBezierCurve3 {
  const place = (layer: PlacedLayer, side: number): Vector3 => {
    const [x, y, z] = layer.place;
    const reach = side * (layer.size[axis] / 2 + MARGIN);
    return axis === 0 ? new Vector3(x + reach, y, z) : new Vector3(x, y, z + reach);
  };
  const [start, end] = [place(from, sign), place(to, -sign)];
  const away = start.distanceTo(end) * 0.35;
  const lift = (point: Vector3, side: number): Vector3 => {
    const moved = point.clone().add(new Vector3(0, 0.3, 0));
    return axis === 0 ? moved.setX(point.x + side * away) : moved.setZ(point.z + side * away);
  };
  return new CubicBezierCurve3(start, lift(start, sign), lift(end, -sign), end);
}

// To itself: out of the left edge and back into it.
function loop({ place: [x, y, z], size: [width, depth] }: PlacedLayer): CubicBezierCurve3 {
  const [edge, half] = [x - width / 2 - MARGIN, Math.min(depth * 0.2, 1)];
  const point = (right: number, front: number): Vector3 => new Vector3(right, y, z - depth * 0.25 + front);
  const out = edge - Math.max(1.2, half * 1.6);
  return new CubicBezierCurve3(point(edge, -half), point(out, -half * 1.3), point(out, half * 1.3), point(edge, half));
}

class Gathered {
  private readonly positions: number[] = [];
  private readonly along: number[] = [];
  private readonly tints: number[] = [];
  private readonly dashes: number[] = [];
  private readonly index: number[] = [];

  constructor(
    private readonly corners: number,
    private readonly thin: number,
  ) {}

  add(curve: CubicBezierCurve3, tint: number[], dash: number): void {
    const length = curve.getLength();
    const head = Math.min(9.5 * this.thin, length * 0.4);
    const tube = new TubeGeometry(curve, this.corners, this.thin, 5, false);
    const [end, way] = [curve.getPoint(1), curve.getTangent(1)];
    const cone = new ConeGeometry(head * 0.36, head, 10);
    const turned = new Quaternion().setFromUnitVectors(new Vector3(0, 1, 0), way);
    cone.applyMatrix4(new Matrix4().compose(end.addScaledVector(way, -head / 2), turned, new Vector3(1, 1, 1)));
    this.put(tube, tint, dash, length / this.thin);
    this.put(cone, tint, 0, 0);
  }

  mesh(): Mesh<BufferGeometry, ShaderMaterial> | null {
    if (!this.index.length) return null;
    const geometry = new BufferGeometry();
    geometry.setIndex(this.index);
    geometry.setAttribute("position", new Float32BufferAttribute(this.positions, 3));
    geometry.setAttribute("along", new Float32BufferAttribute(this.along, 1));
    geometry.setAttribute("dash", new Float32BufferAttribute(this.dashes, 1));
    geometry.setAttribute("tint", new Float32BufferAttribute(this.tints, 3));
    const mesh = new Mesh(geometry, material());
    mesh.frustumCulled = false;
    return mesh;
  }

  private put(geometry: BufferGeometry, tint: number[], dash: number, length: number): void {
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

function material(): ShaderMaterial {
  return new ShaderMaterial({
    vertexShader: ARROW_VERTEX, fragmentShader: ARROW_FRAGMENT, glslVersion: GLSL3, transparent: true,
    blending: CustomBlending, blendSrc: OneFactor, blendDst: OneMinusSrcAlphaFactor, premultipliedAlpha: true,
  }); // prettier-ignore
}
