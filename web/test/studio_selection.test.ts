// Which tables, rows and lines belong to the selection.
import { equal } from "node:assert/strict";
import { test } from "node:test";

import type { Net } from "../src/studio/messages";
import { isSelectedLabel, namesOf } from "../src/studio/selected_names";

const layers = [
  { layer: { name: "net.conv1", also: ["net.relu", "net.conv1.weight"] } },
  { layer: { name: "h.0", also: [] } },
];
const net = { layers } as unknown as Net;

test("a layer's name and those of its parts are selected, with or without the model's", () => {
  const isSelected = namesOf(net, { layer: "net.conv1", unit: 0 });
  for (const name of ["net.conv1", "conv1", "net.relu", "net.conv1.weight"]) equal(isSelected(name), true, name);
  for (const name of ["weight", "conv", "net.conv11", "", "h.0"]) equal(isSelected(name), false, name);
});

test("of a module everything in it is selected", () => {
  const isSelected = namesOf(net, { layer: "h.0", unit: 0, module: "h" });
  for (const name of ["h", "h.0", "h.1.mlp"]) equal(isSelected(name), true, name);
  for (const name of ["0", "head", "hh.0"]) equal(isSelected(name), false, name);
});

test("a line is marked if its label has the name as a word", () => {
  const isSelected = namesOf(net, { layer: "net.conv1", unit: 0 });
  equal(isSelectedLabel("norm · layer conv1", isSelected), true);
  equal(isSelectedLabel("conv1/mean", isSelected), true);
  equal(isSelectedLabel("loss", isSelected), false);
});

test("without a selection nothing is marked", () => equal(namesOf(net, null)("net.conv1"), false));
