// The committed bundles: each must work inside a single-file page, offline.
import { deepEqual, equal, ok } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Script } from "node:vm";

const bundle = readFileSync("../src/torcheer/drawing/page/graph.js", "utf8");

test("the drawing's bundle is a classic script", () => {
  ok(new Script(bundle)); // an import or export left in it would be a syntax error
});

test("the drawing's bundle can stand inside a script element", () => {
  equal(bundle.search(/<\/script|<!--/i), -1);
});

test("the drawing's bundle names no address but the namespaces of SVG and HTML", () => {
  const addresses = bundle.match(/\b(?:https?|wss?):\/\/[^"'`\s)]*/g) ?? [];
  deepEqual(
    addresses.filter((address) => !address.startsWith("http://www.w3.org/")),
    [],
  );
});
