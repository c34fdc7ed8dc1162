// Run web/test/*.test.ts with node's own test runner; Node 18 and 20 do not read TypeScript, so they are bundled first.
//
//   node web/test.mjs             all of them
//   node web/test.mjs compose     those with "compose" in their name
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { bundle, here } from "./bundle.mjs";

const wanted = process.argv.slice(2);
const names = readdirSync(join(here, "test")).filter(
  (name) => name.endsWith(".test.ts") && (!wanted.length || wanted.some((part) => name.includes(part))),
);
if (!names.length) {
  console.error(`no test in web/test has ${wanted.join(" or ") || ".test.ts"} in its name`);
  process.exit(2);
}

const folder = mkdtempSync(join(tmpdir(), "torcheer-web-"));
try {
  await bundle({
    entryPoints: names.map((name) => `test/${name}`),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    format: "esm",
    sourcemap: "inline",
  });
  const files = names.map((name) => join(folder, name.replace(/ts$/, "mjs")));
  const run = ["--enable-source-maps", "--test", "--test-reporter=spec", ...files];
  process.exitCode = spawnSync(process.execPath, run, { cwd: here, stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
