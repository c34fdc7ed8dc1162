// Read-only hooks for the browser tests: positions, what is drawn, the pose.
import type { NetworkPresenter } from "./presenter";
import { Scene } from "./scene/scene";

declare global {
  interface Window {
    __studio?: Readonly<Record<string, (...given: never[]) => unknown>>;
  }
}

/** Expose the hooks as `window.__studio`; returns a function that removes them. */
export function exposeTestHooks(presenter: NetworkPresenter): () => void {
  const { scene } = presenter;
  window.__studio = Object.freeze({
    project: (layer: string, unit: number) => scene.project({ layer, unit }),
    at: (x: number, y: number) => scene.pickAt(x, y),
    seen: () => ({ ...presenter.displayed.get(), missing: [...presenter.displayed.get().missing.keys()] }),
    drawn: () => scene.drawCount,
    form: (layer: string) => (scene instanceof Scene ? (scene.layerMeshes.get(layer)?.form ?? null) : "cells"),
    range: (layer: string) => [...(scene.ranges.get(layer) ?? [])],
    shown: () =>
      [...(presenter.folding.visible.get()?.items.entries() ?? [])].map(
        ([layer, { title, detail, canOpen, count }]) => ({ layer, title, detail, canOpen, count }),
      ),
    frames: () =>
      presenter.folding.visible.get()?.frames.map(({ node, members }) => ({ title: node.title, members })) ?? [],
    arrows: () =>
      presenter.folding.visible.get()?.net.projections.map(({ sender, receiver, type }) => [sender, receiver, type]) ??
      [],
    faults: () => Object.fromEntries([...scene.faults].map(([layer, { text }]) => [layer, text])),
    tints: () => (scene.tints ? Object.fromEntries(scene.tints) : null),
    tokens: () => (scene instanceof Scene ? scene.tokens.shown.map(({ text, angle }) => [text, angle]) : []),
    pose: () => ({ ...presenter.pose() }),
    memory: () => (scene instanceof Scene ? scene.memory() : {}),
  });
  return () => delete window.__studio;
}
