// Where labels of slabs stand: apart from each other, beside their own slab, and never left out.
import { deepEqual, ok } from "node:assert/strict";
import { test } from "node:test";
import { placeLabels, type LabelBox, type LabelToPlace, type Point } from "../src/studio/network/scene/label_placement";
import { labelSpots } from "../src/studio/network/scene/label_requests";

const area = (width: number, height = 500): Parameters<typeof placeLabels>[1] => ({
  width,
  height,
  occupied: [],
  arrows: [],
  isCrowded: false,
});

function slab(left: number, top: number, width: number, height = 24): Point[] {
  return [[12, 0], [width, 4], [width - 12, height], [0, height - 4]].map(([x, y]) => ({ x: left + x, y: top + y })); // prettier-ignore
}

function label(key: string, quad: Point[], width = 90): LabelToPlace {
  const weight = Math.max(...quad.map(({ y }) => y));
  return { key, weight, spots: labelSpots(quad), size: { width, height: 17 }, isSelected: false, quad };
}

function touches(one: LabelBox, other: LabelBox): boolean {
  const isBeside = one.left + one.width <= other.left || other.left + other.width <= one.left;
  return !isBeside && one.top < other.top + other.height && other.top < one.top + one.height;
}

test("on a phone, slabs as wide as the screen keep all their names, each beside its own", () => {
  const quads = new Map([0, 1, 2, 3, 4, 5].map((n) => [`layer ${n}`, slab(20 + 2 * n, 40 + 48 * n, 340)]));
  const placed = placeLabels(
    [...quads].map(([key, quad]) => label(key, quad)),
    area(390),
  );
  deepEqual([...placed.keys()].sort(), [...quads.keys()]);
  for (const [key, { box }] of placed) {
    const [top, bottom] = [Math.min, Math.max].map((end) => end(...quads.get(key)!.map(({ y }) => y)));
    ok(box.top + box.height > top - 8 && box.top < bottom + 8, `${key} stands away from its slab`);
    for (const [other, { box: its }] of placed) ok(other === key || !touches(box, its), `${key} covers ${other}`);
  }
});

test("of two slabs side by side a name is not put on the other", () => {
  const [picture, maps] = [slab(20, 100, 140, 40), slab(180, 110, 190, 40)];
  const placed = placeLabels([label("picture", picture, 50), label("maps", maps, 80)], area(390));
  const middle = ({ left, width }: LabelBox): number => left + width / 2;
  ok(Math.abs(middle(placed.get("picture")!.box) - 90) < 80);
  ok(Math.abs(middle(placed.get("maps")!.box) - 275) < 110);
});

test("a name for which there is no room beside its slab stands away from it, with a line to it", () => {
  const quad = slab(160, 200, 60);
  const walls = { left: 40, top: 150, width: 300, height: 120 };
  const placed = placeLabels([label("layer", quad)], { ...area(600), occupied: [walls] });
  const { box, leader } = placed.get("layer")!;
  ok(!touches(box, walls));
  ok(leader !== null && leader[1].x >= 159 && leader[1].x <= 221);
});

test("a name leaves an arrow free where there is another place for it", () => {
  const quad = slab(200, 200, 100);
  const beside = placeLabels([label("layer", quad)], area(600)).get("layer")!.box;
  const arrows = Array.from({ length: 40 }, (_, n) => ({ x: beside.left + 20, y: 5 * n + 120 }));
  const { box } = placeLabels([label("layer", quad)], { ...area(600), arrows }).get("layer")!;
  ok(!arrows.some(({ x, y }) => touches(box, { left: x, top: y, width: 1, height: 1 })));
});
