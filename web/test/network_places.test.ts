// Positions of layers, fitting of the camera, and paths of arrows.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { Vector3 } from "three";

import type { Net, PlacedLayer } from "../src/studio/messages";
import { buildArrows, arrowPath, arrowType } from "../src/studio/network/scene/arrows";
import { frameSections } from "../src/studio/network/scene/frame_outline";
import { OrbitCamera } from "../src/studio/network/scene/orbit_camera";
import { leanStack, canLean } from "../src/studio/network/scene/stack_lean";

const placed = (name: string, place: [number, number, number], size: [number, number] = [10, 10]): PlacedLayer => ({
  layer: { name, shape: [4], kind: "", view: "auto", place: null, relation: "", other: "", align: ["", ""], space: null, also: [], holds: false, range: null },
  units: 4, grid: [1, 1, 2, 2], size, place,
}); // prettier-ignore
const stack = (levels: number): PlacedLayer[] =>
  Array.from({ length: levels }, (_, n) => placed(`l${n}`, [0, n * 4, 0]));

test("a stack leans to the right in a wide window and stands upright in a narrow one", () => {
  const wide = leanStack(stack(6), 1.8, 0.2, 0.44);
  ok(wide.every(([x], n) => !n || x > wide[n - 1][0]));
  ok(wide.every(([, y], n) => !n || y > wide[n - 1][1]));
  const narrow = leanStack(stack(6), 0.15, 0.2, 0.44);
  ok(narrow.every(([x]) => x === 0));
  ok(narrow[5][1] > 1.3 * leanStack(stack(6), 1, 0.2, 0.44)[5][1], "its levels are further apart");
});

test("a frame follows its stack and leaves out what stands beside its widest level", () => {
  const members = [placed("a", [0, 0, 0]), placed("b", [4, 4, 0]), placed("c", [30, 8, 0], [20, 10])];
  const sections = frameSections(members, 1);
  for (const { place, size } of members) {
    const level = sections.filter(({ height }) => Math.abs(height - place[1]) <= 1);
    for (const { left, right, back, front } of level) {
      ok(left <= place[0] - size[0] / 2 - 1 && right >= place[0] + size[0] / 2 + 1);
      ok(back <= -6 && front >= 6);
    }
  }
  deepEqual(sections.map(({ height }) => height), [-1, 4, 9]); // prettier-ignore
  equal(sections[2].left, 19); // a layer at 10 on the highest level is outside
  equal(frameSections([placed("alone", [0, 2, 0])], 1).length, 2);
});

test("a single layer, and none at all, stand where they are", () => {
  deepEqual(leanStack(stack(1), 1.8, 0.2, 0.44), [[0, 0, 0]]);
  deepEqual(leanStack([], 1.8, 0.2, 0.44), []);
});

test("layers that somebody placed are not moved", () => {
  const net: Net = { name: "", layers: stack(3), projections: [], variables: [], modules: [], token_names: [] };
  ok(canLean(net));
  net.layers[1].layer.relation = "right";
  ok(!canLean(net));
});

test("a fitted camera shows every point and fills the window, wide, narrow or deep", () => {
  for (const [width, height] of [
    [1280, 800],
    [400, 900],
    [1600, 300],
  ]) {
    // prettier-ignore
    for (const levels of [1, 3, 40]) {
      const orbit = new OrbitCamera(() => {});
      const points = stack(levels).flatMap(({ place: [x, y, z] }) => [new Vector3(x - 5, y, z - 5), new Vector3(x + 5, y, z + 5), new Vector3(x + 5, y, z - 5), new Vector3(x - 5, y, z + 5)]); // prettier-ignore
      orbit.sceneSize = 20 + levels * 4;
      orbit.resize(width, height);
      orbit.set(orbit.fitPose(points, 0.2, 0.44));
      const seen = points.map((point) => point.clone().project(orbit.camera));
      const most = Math.max(...seen.map(({ x, y }) => Math.max(Math.abs(x), Math.abs(y))));
      ok(most < 1 && most > 0.85, `${width}×${height}, ${levels} levels: ${most}`);
      ok(seen.every(({ z }) => z > -1 && z < 1), "within near and far");
    }
  }
});

test("a leaning stack hides none of its layers", () => {
  for (const [width, height] of [
    [1180, 700],
    [1024, 530],
    [390, 525],
  ]) /* prettier-ignore */ {
    const layers = stack(14);
    const places = leanStack(layers, width / height, 0.2, 0.44);
    const corners = places.map(([x, y, z]) => [-5, 5].flatMap((right) => [-5, 5].map((front) => new Vector3(x + right, y, z + front)))); // prettier-ignore
    const orbit = new OrbitCamera(() => {});
    orbit.sceneSize = 150;
    orbit.resize(width, height);
    orbit.set(orbit.fitPose(corners.flat(), 0.2, 0.44));
    const bounds = corners.map((points) => points.map((point) => point.clone().project(orbit.camera)));
    bounds.slice(1).forEach((upper, n) => {
      const [lowest, highest] = [Math.min(...upper.map(({ y }) => y)), Math.max(...bounds[n].map(({ y }) => y))];
      ok(lowest > highest - 0.02, `${width}×${height}, level ${n + 1}: ${lowest} below ${highest}`);
    });
  }
});

test("zooming keeps the point under the pointer where it is", () => {
  const orbit = new OrbitCamera(() => {});
  orbit.sceneSize = 40;
  orbit.resize(800, 600);
  const point = new Vector3(3, 2, -1);
  const before = point.clone().project(orbit.camera);
  for (let n = 0; n < 20; n++) orbit.zoom(0.9, point);
  const after = point.clone().project(orbit.camera);
  ok(Math.hypot(after.x - before.x, after.y - before.y) < 1e-6);
});

test("one cannot go through the ground of the scene, nor too far away", () => {
  const orbit = new OrbitCamera(() => {});
  orbit.sceneSize = 10;
  for (let n = 0; n < 200; n++) orbit.zoom(0.5);
  ok(orbit.pose.distance > 0);
  for (let n = 0; n < 200; n++) orbit.zoom(2);
  equal(orbit.pose.distance, 120);
  orbit.turn(0, 1e6);
  ok(orbit.pose.elevation < Math.PI / 2);
});

test("a type that has the name of something all objects have is drawn as forward is", () => {
  const layers = [placed("constructor", [0, 0, 0]), placed("__proto__", [0, 4, 0])];
  for (const type of ["constructor", "__proto__", "toString", "hasOwnProperty", "unheard of"]) {
    equal(arrowType(type), "forward");
    const projection = { name: type, sender: "constructor", receiver: "__proto__", type } as Net["projections"][number];
    const mesh = buildArrows(
      { name: "", layers, projections: [projection], variables: [], modules: [], token_names: [] },
      false,
      0.1,
    )!;
    deepEqual(
      [...mesh.geometry.getAttribute("tint").array.slice(0, 3)].map((part) => Math.round(part * 255)),
      [0x7b, 0x87, 0x94],
    );
  }
});

test("arrows of different types take different ways, and a recurrent one comes back", () => {
  const [low, high] = [placed("low", [0, 0, 0]), placed("high", [3, 5, 0])];
  const middles = ["forward", "skip"].map((type) => arrowPath(low, high, type).getPoint(0.5));
  ok(middles[0].x > middles[1].x);
  const loop = arrowPath(low, low, "recurrent");
  equal(loop.getPoint(0).x, loop.getPoint(1).x);
  ok(loop.getPoint(0.5).x < loop.getPoint(0).x);
  const beside = arrowPath(low, placed("far", [30, 0, 0]), "lateral");
  ok(beside.getPoint(0).x < beside.getPoint(1).x);
});
