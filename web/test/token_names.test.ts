import assert from "node:assert/strict";
import { test } from "node:test";

import type { Net, PlacedLayer } from "../src/studio/messages";
import { stackLayers } from "../src/studio/network/fold/stacking";
import { rayOnPlane, scenePoint, type PosedLayer } from "../src/studio/network/scene/layer_pose";
import { leanStack } from "../src/studio/network/scene/stack_lean";
import { headNames, lookText, namesFor } from "../src/studio/token_names";
import { Ray, Vector3 } from "three";

test("one list of names holds for all items of a batch, several for one each", () => {
  assert.deepEqual(namesFor([["a", "b"]], 7, 2), ["a", "b"]);
  assert.deepEqual(
    namesFor(
      [
        ["a", "b"],
        ["c", "d"],
      ],
      1,
      2,
    ),
    ["c", "d"],
  );
  assert.equal(
    namesFor(
      [
        ["a", "b"],
        ["c", "d"],
      ],
      2,
      2,
    ),
    null,
  );
});

test("names stand only at an axis that has as many tokens", () => {
  const names = headNames([["a", "b", "c"]], 0, [8, 1, 3]);
  assert.deepEqual(names, { rows: null, columns: ["a", "b", "c"] });
  assert.equal(lookText(names, 0, 2), "→ c");
  assert.equal(lookText(headNames([["a", "b"]], 0, [8, 2, 2]), 1, 0), "b → a");
  assert.equal(lookText(headNames([], 0, [8, 2, 2]), 1, 0), "");
});

function posed(name: string, stands: boolean): PosedLayer {
  const layer = { name, shape: [2, 4, 4], kind: "", view: "maps", place: null, relation: "", other: "", align: ["", ""] as [string, string], space: null, also: [], holds: false, range: null }; // prettier-ignore
  return { layer, units: 32, grid: [1, 2, 4, 4], size: [8, 6], place: [0, 0, 0], stands } as PlacedLayer;
}

test("a point of an upright plane lies above its place, its first row on top", () => {
  const heads = { ...posed("heads", true), place: [1, 10, 2] as [number, number, number] };
  assert.deepEqual(scenePoint(heads, 0, 0, -3).toArray(), [1, 16, 2]);
  assert.deepEqual(scenePoint(heads, -4, 0.5, 3).toArray(), [-3, 10, 2.5]);
});

test("a ray hits an upright plane where its point is", () => {
  const heads = { ...posed("heads", true), place: [1, 10, 2] as [number, number, number] };
  const eye = new Vector3(5, 20, 40);
  const target = scenePoint(heads, 2, 0, -1);
  const local = rayOnPlane(heads, new Ray(eye, target.clone().sub(eye).normalize()));
  const hit = local.at(-local.origin.y / local.direction.y, new Vector3());
  assert.ok(hit.distanceTo(new Vector3(2, 0, -1)) < 1e-9);
});

test("the level above upright heads begins above them, leaning or not", () => {
  const layers = [posed("a", false), posed("heads", true), posed("b", false)];
  const projections = ["a", "heads"].map((sender, n) => ({ name: `${n}`, sender, receiver: ["heads", "b"][n], kind: "", shape: [], stride: [], padding: [], dilation: [], groups: 1, type: "forward" })); // prettier-ignore
  stackLayers(layers, projections as Net["projections"]);
  assert.ok(layers[2].place[1] - layers[1].place[1] > 6);
  const leaning = leanStack(layers, 1.6, 0.2, 0.44);
  assert.ok(leaning[2][1] - leaning[1][1] > 6);
});
