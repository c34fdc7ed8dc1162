// What gestures over the 3D view do: turn, move and zoom it; select units, open modules.
import { attachGestures, type GestureHandler, type Point } from "../../camera/gestures";
import type { NetworkPresenter } from "./presenter";
import { Scene } from "./scene/scene";

const [MIDDLE_OR_RIGHT, OVER_THE_PICTURE] = [6, "button, a, input, select, .network-label"];

/** Attach the listeners; returns a function that removes them. */
export function attachOrbitGestures(presenter: NetworkPresenter, host: HTMLElement): () => void {
  const abort = new AbortController();
  const hovering = new Hovering(presenter);
  const detach = attachGestures(host, orbitHandler(presenter, host, hovering));
  host.addEventListener("contextmenu", (event) => event.preventDefault(), { signal: abort.signal });
  host.addEventListener("keydown", () => host.classList.remove("by-pointer"), { signal: abort.signal });
  return () => {
    hovering.leave();
    detach();
    abort.abort();
  };
}

function orbitHandler(presenter: NetworkPresenter, host: HTMLElement, hovering: Hovering): GestureHandler {
  const move = (run: (scene: Scene) => void): void => {
    if (!(presenter.scene instanceof Scene)) return;
    presenter.hoverAt(null);
    presenter.scene.markTouched();
    run(presenter.scene);
  };
  return {
    accepts: ({ target }) => !(target instanceof Element && target.closest(OVER_THE_PICTURE)),
    pressed: () => {
      host.focus({ preventScroll: true });
      host.classList.add("by-pointer"); // no focus ring after a click
    },
    drag: (right, down, event) =>
      move(({ orbit }) => orbit[event.buttons & MIDDLE_OR_RIGHT || event.shiftKey ? "pan" : "turn"](right, down)),
    pan: (right, down) => move(({ orbit }) => orbit.pan(right, down)),
    zoom: (factor, { x, y }) => move((scene) => scene.zoom(1 / factor, x, y)),
    click: ({ x, y }) => {
      const picked = presenter.scene.pickAt(x, y);
      if (picked && presenter.open(picked.layer)) return;
      presenter.select(picked && picked.unit >= 0 ? { layer: picked.layer, unit: picked.unit } : null);
    },
    hover: (at) => hovering.move(at),
    leave: () => hovering.leave(),
  };
}

// At most once per animation frame: picking takes a moment.
class Hovering {
  private request = 0;
  private last: Point | null = null;

  constructor(private readonly presenter: NetworkPresenter) {}

  move(at: Point): void {
    this.last = at;
    this.request ||= requestAnimationFrame(() => {
      this.request = 0;
      if (this.last) this.presenter.hoverAt(this.last);
    });
  }

  leave(): void {
    cancelAnimationFrame(this.request);
    this.request = 0;
    this.last = null;
    this.presenter.hoverAt(null);
  }
}
