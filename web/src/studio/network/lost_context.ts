// A WebGL context that the browser took away and does not give back: the layers are then shown as flat cells.
import type { NetworkPresenter } from "./presenter";

const WAIT_MS = 10_000; // for the browser to restore it

/** Call `giveUp` once the context has been lost for a while; returns a function that stops waiting. */
export function whenContextStaysLost(presenter: NetworkPresenter, giveUp: () => void, waitMs = WAIT_MS): () => void {
  let timer = 0;
  const unsubscribe = presenter.isContextLost.subscribe((isLost) => {
    window.clearTimeout(timer);
    if (isLost) timer = window.setTimeout(giveUp, waitMs);
  });
  return () => {
    window.clearTimeout(timer);
    unsubscribe();
  };
}
