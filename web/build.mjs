// Bundle the pages into src/torcheer. The drawing's bundle is committed; the studio's is ten times as long, so git
// ignores it: `make setup` builds it, wheels and sdists carry it, and installing torcheer needs no Node.
//
//   node web/build.mjs            write the bundles that changed
//   node web/build.mjs --check    write nothing; fail if a committed bundle is out of date
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, relative, resolve } from "node:path";

import { bundle, here } from "./bundle.mjs";

const root = resolve(here, "..");
const pages = [
  { source: "src/graph/main.ts", bundled: "src/torcheer/drawing/page/graph.js" },
  { source: "src/studio/main.tsx", bundled: "src/torcheer/studio/page/studio.js", ignored: true },
];
const assets = {
  "index.html": ["src/studio/index.html"],
  "icon.svg": ["src/studio/icon.svg"],
  "studio.css": [
    "node_modules/uplot/dist/uPlot.min.css",
    "src/studio/studio.css",
    "src/studio/network/network.css",
    "src/studio/report/report.css",
    "src/studio/runs/runs.css",
    "src/studio/backward/backward.css",
    "src/studio/inspector/inspector.css",
    "src/studio/compare/compare.css",
    "src/studio/shell/narrow.css",
  ],
}; // of the studio's page: name -> sources, concatenated

const unknown = process.argv.slice(2).filter((argument) => argument !== "--check");
if (unknown.length) {
  console.error(`build.mjs knows only --check, not ${unknown.join(" ")}`);
  process.exit(2);
}
const check = process.argv.includes("--check");

for (const { source, bundled, ignored } of pages) {
  if (check && ignored) continue;
  await writeBundle(bundled, await bundlePage(source), source);
}
for (const [name, sources] of check ? [] : Object.entries(assets)) {
  const texts = await Promise.all(sources.map((source) => readFile(resolve(here, source), "utf8")));
  await writeBundle(`src/torcheer/studio/page/${name}`, texts.join("\n"), sources[0]);
}

/** Write a file if it changed; with --check, report it instead. */
async function writeBundle(bundled, content, source) {
  const file = resolve(root, bundled);
  const current = await readText(file);
  if (content === current) return;
  if (check) {
    const problem =
      current === null ? "is missing" : `is not what ${relative(root, resolve(here, source))} gives today`;
    console.error(`${bundled} ${problem}: run \`make web\` and commit it`);
    process.exitCode = 1;
  } else {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, content);
    console.log(`${bundled}: ${(Buffer.byteLength(content) / 1024).toFixed(1)} KiB`);
  }
}

async function bundlePage(source) {
  const options = { format: "iife", target: "es2020", minify: true, write: false };
  const result = await bundle({ ...options, entryPoints: [source] });
  return result.outputFiles[0].text;
}

async function readText(file) {
  return readFile(file, "utf8").catch((error) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
}
