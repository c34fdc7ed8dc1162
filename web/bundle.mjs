// esbuild with the settings shared by the build and the tests.
import { dirname, delimiter } from "node:path";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));

// esbuild-wasm starts `node` by name: put the node that runs this first on PATH.
process.env.PATH = dirname(process.execPath) + delimiter + process.env.PATH;
const { build } = await import("esbuild-wasm");

/** Bundle with the shared settings; with `write: false` the result is in `outputFiles`. */
export function bundle(options) {
  return build({
    absWorkingDir: here,
    bundle: true,
    charset: "utf8",
    loader: { ".css": "text" },
    logLevel: "warning",
    ...options,
  });
}
