// What tests may ask the page: where things are and what is drawn. Nothing here changes anything.
import type { NetworkPresenter } from "./presenter";
import { Scene } from "./scene/scene";

declare global {
  interface Window {
    __studio?: Readonly<Record<string, (...given: never[]) => unknown>>;
  }
}

/** Let tests look; the answer ends it. */
export function exposeTestHooks(presenter: NetworkPresenter): () => void {
  const { scene } = presenter;
  window.__studio = Object.freeze({
    project: (layer: string, unit: number) => scene.project({ layer, unit }),
    at: (x: number, y: number) => scene.pickAt(x, y),
    seen: () => ({ ...presenter.displayed.get(), missing: [...presenter.displayed.get().missing.keys()] }),
    drawn: () => scene.drawCount,
    form: (layer: string) => (scene instanceof Scene ? (scene.layerMeshes.get(layer)?.form ?? null) : "cells"),
    range: (layer: string) => [...(scene.ranges.get(layer) ?? [])],
    pose: () => ({ ...presenter.pose() }),
    memory: () => (scene instanceof Scene ? scene.memory() : {}),
  });
  return () => delete window.__studio;
}
