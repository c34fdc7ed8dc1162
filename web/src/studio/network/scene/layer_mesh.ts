// The meshes of one layer: its plane, and bars or cells that read the same byte texture.
import {
  BoxGeometry, BufferGeometry, CustomBlending, DataTexture, Float32BufferAttribute, GLSL3, Group, InstancedBufferGeometry,
  Mesh, NearestFilter, OneFactor, OneMinusSrcAlphaFactor, RedFormat, ShaderMaterial, Vector2, Vector3, Vector4,
  type IUniform, type Texture,
} from "three"; // prettier-ignore
import type { PlacedLayer } from "../../messages";
import type { Fault } from "../fold/faults";
import { parseColour } from "../values/colour_maps";
import { scenePoint, type PosedLayer } from "./layer_pose";
import { pictureOf, sentPixels, type RgbPicture } from "./rgb_picture";
import { cellsOf, gapOf, layoutOf, cellOfUnit, sentCellOf, spanOf, type FrameLayout } from "./unit_grid";
import { baselineOf, valueOf, type Frame } from "../values/value_ranges";
import {
  NAN_HEIGHT,
  BAR_FRAGMENT,
  BAR_VERTEX,
  CELL_FRAGMENT,
  CELL_VERTEX,
  PLANE_FRAGMENT,
  PLANE_VERTEX,
} from "./shaders";

export type LayerForm = "bars" | "cells";

/** The scene's colours, "#rrggbb" each. */
export interface ScenePalette {
  plane: string;
  rim: string;
  blank: string;
  nan: string;
  plus: string; // infinities
  minus: string;
  green: string;
  accent: string;
  wrong: string; // outlines of layers with faults
}

const PLANE_MARGIN = 0.35; // width of the plane's rim around its cells
const MAX_COPIES = 3; // planes behind that of a run
const COPY_OFFSET = 0.32;
const MAX_TEXTURE_WIDTH = 2048; // maximum width of a texture row

type Uniforms = Record<string, IUniform>;

const blending = {
  transparent: true, blending: CustomBlending, blendSrc: OneFactor, blendDst: OneMinusSrcAlphaFactor,
  premultipliedAlpha: true, glslVersion: GLSL3,
} as const; // prettier-ignore

/** A drawable layer. */
export class LayerMesh {
  readonly group = new Group();
  frame: Frame | null = null;
  form: LayerForm = "cells";
  barHeight = 1; // height of the highest bar
  layout: FrameLayout; // of the displayed frame
  picture: RgbPicture | null = null; // that the frame is, drawn unless bars are
  private readonly bars: Mesh<InstancedBufferGeometry, ShaderMaterial>;
  private readonly cells: Mesh<BufferGeometry, ShaderMaterial>;
  private readonly plane: Mesh<BufferGeometry, ShaderMaterial>;
  private readonly copies: Mesh<BufferGeometry, ShaderMaterial>[] = [];
  private readonly uniforms: ReturnType<typeof layerUniforms>;
  private texture: DataTexture;
  private palette: ScenePalette | null = null;
  private tint: string | null = null;

  constructor(
    readonly placed: PosedLayer,
    count = 1, // how many equal modules it stands for: drawn as a stack
  ) {
    this.layout = layoutOf(placed.grid, null);
    this.texture = makeTexture(1);
    this.uniforms = layerUniforms(placed, this.texture);
    this.bars = new Mesh(barGeometry(), makeMaterial(this.uniforms, BAR_VERTEX, BAR_FRAGMENT));
    this.cells = new Mesh(squareGeometry(), makeMaterial(this.uniforms, CELL_VERTEX, CELL_FRAGMENT));
    this.plane = new Mesh(squareGeometry(), planeMaterial(placed));
    this.plane.material.depthWrite = false;
    this.plane.position.y = -0.02; // below the caps of bars that hang down
    this.moveTo(placed.place);
    if (placed.stands) this.group.rotation.x = Math.PI / 2; // its front edge below, bars towards the camera
    for (const mesh of [this.bars, this.cells, this.plane]) mesh.frustumCulled = false; // the shaders position them
    this.group.add(this.bars, this.cells, this.plane);
    for (let n = 1; n < Math.min(count, MAX_COPIES + 1); n++) {
      const copy = new Mesh(this.plane.geometry, this.plane.material);
      copy.position.set(COPY_OFFSET * n, -0.02 - COPY_OFFSET * n, -COPY_OFFSET * n);
      copy.frustumCulled = false;
      this.copies.push(copy);
      this.group.add(copy);
    }
    this.setFrame(null);
  }

  /** Show a frame's values; null shows that there are none. */
  setFrame(frame: Frame | null): void {
    this.frame = frame;
    this.layout = layoutOf(this.placed.grid, frame?.head ?? null);
    this.picture = pictureOf(this.placed, frame);
    const { plane, sent, block } = this.layout;
    this.resizeTexture(Math.max(1, cellsOf(sent)));
    const bytes = this.texture.image.data as Uint8Array;
    if (frame) bytes.set(frame.bytes.subarray(0, bytes.length));
    else bytes.fill(0);
    this.texture.needsUpdate = true;
    const uniforms = this.uniforms;
    uniforms.count.value = this.bars.geometry.instanceCount = this.cellCount();
    uniforms.grid.value.set(...sent);
    uniforms.tile.value.set(plane[3], plane[2]);
    uniforms.block.value.set(block[1], block[0]);
    uniforms.gap.value = gapOf(plane);
    uniforms.fill.value = cellsOf(sent) > 4000 ? 0.92 : 0.82;
    if (frame) uniforms.span.value.set(frame.head.lo, frame.head.hi);
    this.showPicture();
  }

  /** Set the colour range, its colours, whether values near zero are seen through, and the baseline of the bars. */
  setRange(range: [number, number], ramp: Texture, fades: boolean): void {
    this.uniforms.ramp.value = ramp;
    this.uniforms.veil.value = fades ? 1 : 0;
    this.uniforms.range.value.set(...range);
    this.uniforms.ground.value = baselineOf(range);
  }

  /** Move the layer. */
  moveTo(place: [number, number, number]): void {
    this.placed.place = place;
    this.group.position.copy(scenePoint(this.placed, 0, 0, 0));
  }

  /** Switch between bars and cells. */
  setForm(form: LayerForm): void {
    this.form = form;
    this.bars.visible = form === "bars" && this.tint === null;
    this.cells.visible = form === "cells" && this.tint === null;
    this.showPicture();
  }

  private showPicture(): void {
    const picture = this.form === "cells" ? this.picture : null;
    this.layout.picture = picture;
    this.uniforms.picture.value = !picture ? 0 : picture.isInterleaved ? 2 : 1;
    if (picture) this.uniforms.shades.value.set(...picture.shades);
  }

  /** Show one colour in place of the values; "" for none that is known, null for the values. */
  setTint(tint: string | null): void {
    this.tint = tint;
    this.setForm(this.form);
    if (this.palette) this.setPalette(this.palette);
  }

  setBarHeight(barHeight: number): void {
    this.barHeight = barHeight;
    this.uniforms.tall.value = barHeight;
  }

  setPalette(palette: ScenePalette): void {
    this.palette = palette;
    const set = (uniform: IUniform<Vector3>, colour: string): void => {
      const [red, green, blue] = parseColour(colour);
      uniform.value.set(red / 255, green / 255, blue / 255);
    };
    set(this.uniforms.plane, palette.plane);
    for (const name of ["blank", "nan", "plus", "minus"] as const) set(this.uniforms[name], palette[name]);
    set(this.uniforms.green, palette.green);
    const { fill, rim, glow, wrong } = this.plane.material.uniforms as Record<string, IUniform<Vector3>>;
    set(fill, this.tint || palette.plane);
    this.plane.material.uniforms.cover.value = this.tint ? 0.96 : 0.62;
    set(rim, palette.rim);
    set(glow, palette.accent);
    set(wrong, palette.wrong);
  }

  /** Highlight cells; -1 for none. */
  highlight(selectedCell: number, hoveredCell: number): void {
    this.uniforms.chosen.value = selectedCell;
    this.uniforms.pointed.value = hoveredCell;
    this.plane.material.uniforms.lit.value = selectedCell >= 0 || hoveredCell >= 0 ? 1 : 0;
  }

  /** Outline the layer in the colour of faults; null if nothing is wrong with it. */
  setFault(fault: Fault | null): void {
    this.plane.material.uniforms.fault.value = fault ? (fault.isFirst ? 2 : 1) : 0;
  }

  /** Set the draw order: bars and cells before their plane, so that bars hanging below are visible through it. */
  setOrder(order: number): void {
    this.bars.renderOrder = order;
    this.plane.renderOrder = order + 1;
    this.cells.renderOrder = order + 2;
    for (const copy of this.copies) copy.renderOrder = order - 1;
  }

  /** The cell that shows a unit; -1 in a raster, where a unit is a row. */
  cellOf(unit: number): number {
    if (this.frame?.head.raster) return -1;
    return sentCellOf(this.layout, cellOfUnit(this.placed.grid, this.layout, unit));
  }

  /** The height of a cell's bar. */
  heightOf(cell: number): number {
    const byte = this.form === "bars" && this.frame ? this.frame.bytes[cell] : 0;
    const value = this.frame ? valueOf(this.frame.head, byte) : undefined;
    if (value === undefined) return 0;
    if (Number.isNaN(value)) return NAN_HEIGHT * this.barHeight;
    const { x: lo, y: hi } = this.uniforms.range.value;
    const ground = this.uniforms.ground.value;
    const reach = Math.max(Math.abs(lo - ground), Math.abs(hi - ground));
    return Math.max(-1, Math.min(1, (value - ground) / reach)) * this.barHeight;
  }

  /** Width and depth of a sent cell, in world units. */
  cellSize(): [number, number] {
    const { plane, block, picture } = this.layout;
    if (picture) return sentPixels(picture).map((count, n) => this.placed.size[n] / count) as [number, number];
    const [across, down] = spanOf(plane);
    return [(this.placed.size[0] * block[1]) / across, (this.placed.size[1] * block[0]) / down];
  }

  dispose(): void {
    this.texture.dispose();
    for (const mesh of [this.bars, this.cells, this.plane]) {
      mesh.geometry.dispose();
      mesh.material.dispose();
    }
  }

  private cellCount(): number {
    const { units, grid } = this.placed;
    if (!units) return 0;
    const head = this.frame?.head;
    if (!head) return Math.min(units, cellsOf(grid));
    if (head.raster) return head.count;
    return Math.min(head.count, this.cellOf(units - 1) + 1);
  }

  /** Make the texture fit a number of cells, reusing the current one if it does. */
  private resizeTexture(cells: number): void {
    const across = Math.min(MAX_TEXTURE_WIDTH, cells);
    const { width, height } = this.texture.image;
    if (width === across && height === Math.ceil(cells / across)) return;
    this.texture.dispose();
    this.texture = makeTexture(cells);
    this.uniforms.values.value = this.texture;
    this.uniforms.across.value = across;
  }
}

function layerUniforms(placed: PlacedLayer, texture: DataTexture) {
  return {
    values: { value: texture }, ramp: { value: null as Texture | null }, across: { value: 1 }, count: { value: 0 },
    grid: { value: new Vector4(1, 1, 1, 1) }, tile: { value: new Vector2(1, 1) }, block: { value: new Vector2(1, 1) }, gap: { value: 0 }, size: { value: new Vector2(...placed.size) },
    span: { value: new Vector2(0, 1) }, range: { value: new Vector2(-1, 1) }, ground: { value: 0 },
    plane: { value: new Vector3() }, blank: { value: new Vector3() }, nan: { value: new Vector3() }, plus: { value: new Vector3() }, minus: { value: new Vector3() }, green: { value: new Vector3() },
    picture: { value: 0 }, shades: { value: new Vector2(0, 1) }, chosen: { value: -1 }, pointed: { value: -1 }, veil: { value: 1 }, tall: { value: 1 }, fill: { value: 0.82 },
  }; // prettier-ignore
}

function makeTexture(cells: number): DataTexture {
  const across = Math.min(MAX_TEXTURE_WIDTH, cells);
  const down = Math.ceil(cells / across);
  const texture = new DataTexture(new Uint8Array(across * down), across, down, RedFormat);
  texture.minFilter = texture.magFilter = NearestFilter;
  texture.needsUpdate = true;
  return texture;
}

function makeMaterial(uniforms: Uniforms, vertexShader: string, fragmentShader: string): ShaderMaterial {
  return new ShaderMaterial({ uniforms, vertexShader, fragmentShader, ...blending, side: 2 });
}

function planeMaterial({ size }: PlacedLayer): ShaderMaterial {
  const uniforms = {
    size: { value: new Vector2(size[0] + 2 * PLANE_MARGIN, size[1] + 2 * PLANE_MARGIN) }, round: { value: PLANE_MARGIN },
    fill: { value: new Vector3() }, rim: { value: new Vector3() }, glow: { value: new Vector3() },
    cover: { value: 0.62 }, lit: { value: 0 }, fault: { value: 0 }, wrong: { value: new Vector3() },
  }; // prettier-ignore
  return makeMaterial(uniforms, PLANE_VERTEX, PLANE_FRAGMENT);
}

function barGeometry(): InstancedBufferGeometry {
  const box = new BoxGeometry(1, 1, 1);
  const geometry = new InstancedBufferGeometry();
  geometry.setIndex(box.getIndex());
  geometry.setAttribute("position", box.getAttribute("position"));
  geometry.setAttribute("normal", box.getAttribute("normal"));
  return geometry;
}

function squareGeometry(): BufferGeometry {
  const geometry = new BufferGeometry();
  const corners = [-0.5, 0, -0.5, 0.5, 0, -0.5, -0.5, 0, 0.5, 0.5, 0, 0.5];
  geometry.setAttribute("position", new Float32BufferAttribute(corners, 3));
  geometry.setIndex([0, 2, 1, 1, 2, 3]);
  return geometry;
}
