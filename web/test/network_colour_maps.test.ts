// Colour maps of the Network tab.
import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";

import { colourAt, COLOUR_MAPS, findColourMap, buildRamp } from "../src/studio/network/values/colour_maps";

test("ColdHot is first: cold below the middle, grey in it, hot above", () => {
  equal(COLOUR_MAPS[0].name, "ColdHot");
  deepEqual(colourAt(COLOUR_MAPS[0], 0), [0, 255, 255]);
  deepEqual(colourAt(COLOUR_MAPS[0], 0.5), [127, 127, 127]);
  deepEqual(colourAt(COLOUR_MAPS[0], 1), [255, 255, 0]);
});

test("a share outside goes to the nearest end, and one that is no number to the first", () => {
  for (const map of COLOUR_MAPS) {
    deepEqual(colourAt(map, -3), colourAt(map, 0));
    deepEqual(colourAt(map, 7), colourAt(map, 1));
    deepEqual(colourAt(map, NaN), colourAt(map, 0));
  }
});

test("a ramp has 256 opaque colours from the first stop to the last", () => {
  for (const map of COLOUR_MAPS) {
    const ramp = buildRamp(map);
    equal(ramp.length, 1024);
    deepEqual([...ramp.slice(0, 3)], colourAt(map, 0));
    deepEqual([...ramp.slice(1020, 1023)], colourAt(map, 1));
    ok(ramp.every((part, n) => n % 4 !== 3 || part === 255));
  }
});

test("maps that go one way get lighter all the way, so that grey print keeps the order", () => {
  for (const map of COLOUR_MAPS.filter(({ diverging }) => !diverging)) {
    let before = -1;
    for (let n = 0; n <= 40; n++) {
      const [red, green, blue] = colourAt(map, n / 40);
      const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
      ok(light >= before - 0.5, `${map.name} at ${n / 40}`);
      before = light;
    }
  }
});

test("a name that is not known means the first map", () => {
  equal(findColourMap("Viridis").name, "Viridis");
  equal(findColourMap("Rainbow").name, "ColdHot");
});
