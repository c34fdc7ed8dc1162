// Positions of units on their plane.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import {
  sentCellFraction, cellAt, cellsOf, cellUnder, gapOf, unravelUnit, indexOf, layoutOf, neighbour, cellOfUnit, sentCellOf, cellFraction, tileName,
  unitAt, type UnitGrid,
} from "../src/studio/network/scene/unit_grid"; // prettier-ignore
import type { Layer } from "../src/studio/messages";

const GRIDS: UnitGrid[] = [[1, 1, 5, 7], [2, 3, 4, 5], [3, 1, 1, 1], [2, 2, 55, 55], [1, 1, 1, 10]]; // prettier-ignore
const layer = (view: string): Layer => ({
  name: "L",
  shape: [],
  kind: "",
  view,
  place: null,
  relation: "",
  other: "",
  align: ["", ""],
  space: null,
  also: [],
  holds: false,
  range: null,
});

test("the cell under the middle of a cell is that cell", () => {
  for (const grid of GRIDS) {
    for (let cell = 0; cell < cellsOf(grid); cell += 1 + Math.floor(cellsOf(grid) / 97)) {
      equal(cellUnder(grid, ...cellFraction(grid, cell)), cell);
      equal(indexOf(grid, cellAt(grid, cell)), cell);
    }
  }
});

test("between tiles and outside there is no cell", () => {
  const grid: UnitGrid = [1, 2, 4, 4];
  equal(gapOf(grid), 1);
  equal(cellUnder(grid, 0.5, 0.5), -1);
  equal(cellUnder(grid, -0.1, 0.5), -1);
  equal(cellUnder(grid, 0.2, 1), -1);
  equal(cellUnder(grid, NaN, 0.5), -1);
});

test("a row is read from the left, rows from the back to the front", () => {
  const grid: UnitGrid = [1, 1, 2, 3];
  ok(cellFraction(grid, 0)[0] < cellFraction(grid, 1)[0]);
  ok(cellFraction(grid, 0)[1] < cellFraction(grid, 3)[1]);
});

test("a reduced cell covers its units, and lies where they lie", () => {
  const whole: UnitGrid = [2, 2, 7, 5];
  const layout = layoutOf(whole, { grid: [2, 2, 3, 3], block: [3, 2], raster: false });
  for (let unit = 0; unit < cellsOf(whole); unit++) {
    const place = cellOfUnit(whole, layout, unit);
    const cell = sentCellOf(layout, place);
    ok(cell < 2 * 2 * 3 * 3);
    const [left, back] = sentCellFraction(layout, cell);
    equal(sentCellOf(layout, cellUnder(layout.plane, left, back)), cell);
    equal(unitAt(whole, layout, place), unit);
  }
});

test("tiles that came as one plane give each unit its place and back", () => {
  const whole: UnitGrid = [3, 2, 2, 2];
  const layout = layoutOf(whole, { grid: [1, 1, 3, 2], block: [2, 2], raster: false });
  deepEqual(layout.plane, [1, 1, 6, 4]);
  const places = new Set<number>();
  for (let unit = 0; unit < 24; unit++) {
    const place = cellOfUnit(whole, layout, unit);
    places.add(place);
    equal(unitAt(whole, layout, place), unit);
    equal(sentCellOf(layout, place), cellAt(whole, unit).tile); // a tile is a cell here
  }
  equal(places.size, 24);
});

test("an index is that of the layer's shape", () => {
  deepEqual(unravelUnit([3, 4, 5], 0), [0, 0, 0]);
  deepEqual(unravelUnit([3, 4, 5], 59), [2, 3, 4]);
  deepEqual(unravelUnit([10], 7), [7]);
});

test("tiles are maps, heads or pools", () => {
  equal(tileName(layer("maps"), [2, 2, 3, 3], 3), "map 3");
  equal(tileName(layer("heads"), [2, 2, 3, 3], 2), "head 2");
  equal(tileName(layer("pools"), [2, 3, 4, 4], 4), "pool 1, 1");
  equal(tileName(layer("plane"), [1, 1, 3, 3], 0), "");
});

test("arrows walk across tiles and stop at the border and at empty cells", () => {
  const grid: UnitGrid = [1, 2, 2, 2];
  equal(neighbour(grid, 8, 1, 1, 0), 4);
  equal(neighbour(grid, 8, 4, -1, 0), 1);
  equal(neighbour(grid, 8, 0, -1, 0), 0);
  equal(neighbour(grid, 8, 0, 0, 1), 2);
  equal(neighbour(grid, 7, 6, 1, 0), 6); // the last cell is empty
});
