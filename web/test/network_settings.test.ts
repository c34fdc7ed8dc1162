// Stored settings of the Network tab, keyed by names that a user may choose freely.
import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";

const memory = new Map<string, string>();
Object.assign(globalThis, {
  matchMedia: () => ({ matches: false, addEventListener: () => {} }),
  localStorage: { getItem: (key: string) => memory.get(key) ?? null, setItem: (key: string, value: string) => memory.set(key, value) },
}); // prettier-ignore
const {
  DEFAULT_SETTINGS: FIRST,
  saveSettings: keep,
  rangeSetting,
  loadSettings: remembered,
  savedViews,
  saveView,
} = await import("../src/studio/network/settings");

const NAMES = ["constructor", "__proto__", "toString", "hasOwnProperty"];
const variable = (name: string) => ({ name, of: "unit", doc: "", range: null, zero_centred: true });
const chosen = { mode: "fixed", min: 0, max: 5, percent: 99, zeroCentred: false, map: "Magma" } as const;

test("a variable with the name of something all objects have begins as any other", () => {
  for (const name of NAMES) equal(rangeSetting(FIRST, variable(name)).mode, "layer");
});

test("its range and colours are kept for it, and for no other", () => {
  for (const name of NAMES) {
    keep({ ...FIRST, ranges: { [name]: chosen } });
    deepEqual(rangeSetting(remembered(), variable(name)), chosen);
    equal(rangeSetting(remembered(), variable("Act")).map, "ColdHot");
  }
});

test("views of a network with such a name are empty until somebody saves one", () => {
  const pose = { x: 1, y: 2, z: 3, azimuth: 0, elevation: 0, distance: 9 };
  for (const name of NAMES) {
    deepEqual(savedViews(name), [null, null, null, null]);
    saveView(name, 2, pose);
    deepEqual(savedViews(name), [null, null, pose, null]);
  }
});

test("what makes no sense today is forgotten", () => {
  memory.set("torcheer.network", '{"labels": 3, "ranges": {"Act": {"mode": "fixed"}, "Net": 7}}');
  deepEqual(remembered(), FIRST);
  memory.set("torcheer.network", "nonsense");
  deepEqual(remembered(), FIRST);
});
