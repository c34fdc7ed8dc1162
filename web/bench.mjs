// What the page makes of the server's answers on a list of runs, in seconds: for benchmarks/studio_runs.py.
//
//   node web/bench.mjs COLUMNS.json RUNS.json CURVES.json
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { bundle } from "./bundle.mjs";

const folder = mkdtempSync(join(tmpdir(), "torcheer-web-"));
try {
  const outfile = join(folder, "bench.mjs");
  await bundle({ entryPoints: ["test/runs_bench.ts"], outfile, platform: "node", format: "esm" });
  const { measure } = await import(outfile);
  console.log(JSON.stringify(measure(process.argv.slice(2))));
} finally {
  rmSync(folder, { recursive: true });
}
