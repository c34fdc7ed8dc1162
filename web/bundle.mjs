// esbuild, as the build and the tests both use it.
import { dirname, delimiter } from "node:path";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));

// esbuild-wasm starts `node` by name: let it find the one that runs this.
process.env.PATH = dirname(process.execPath) + delimiter + process.env.PATH;
const { build } = await import("esbuild-wasm");

/** Bundle with our settings; the answer is in `outputFiles` where `write` is false. */
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
