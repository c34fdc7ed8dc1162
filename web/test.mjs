// Run web/test/*.test.ts with node's test runner; Node 18 and 20 cannot load TypeScript, so the tests are bundled first.
//
//   node web/test.mjs             all tests
//   node web/test.mjs compose     test files with "compose" in their name
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { bundle, here } from "./bundle.mjs";

const patterns = process.argv.slice(2);
const names = readdirSync(join(here, "test")).filter(
  (name) => name.endsWith(".test.ts") && (!patterns.length || patterns.some((pattern) => name.includes(pattern))),
);
if (!names.length) {
  console.error(`no test in web/test has ${patterns.join(" or ") || ".test.ts"} in its name`);
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
  const nodeArguments = ["--enable-source-maps", "--test", "--test-reporter=spec", ...files];
  process.exitCode = spawnSync(process.execPath, nodeArguments, { cwd: here, stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
