// The Network tab: a network's layers in 3D, with its toolbars and panels.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { addKeyBindings } from "../key_bindings";
import { Signal, useValue, type Store } from "../store";
import { whenContextStaysLost } from "./lost_context";
import { NetworkPresenter } from "./presenter";
import { EmptyHints } from "./panels/empty_hints";
import { attachOrbitGestures } from "./orbit_gestures";
import { exposeTestHooks } from "./test_hooks";
import { networkKeyBindings } from "./network_keys";
import { ColourLegend, Tooltip } from "./panels/colour_legend";
import { UnitPanel } from "./panels/unit_panel";
import { TimeBar } from "./panels/time_bar";
import { WayBar } from "./panels/way_bar";
import { StageTools, NetworkToolbar } from "./panels/network_toolbar";

const currentPresenter = new Signal<NetworkPresenter | null>(null);

/** The selected unit, beside the other tabs; the Network tab has its own panel. */
export function Inspector({ store }: { store: Store }) {
  const presenter = useValue(currentPresenter);
  const tab = useValue(store.tab);
  return presenter && tab !== "network" ? <UnitPanel presenter={presenter} /> : null;
}

/** The tab. */
export function NetworkTab({ store }: { store: Store }) {
  const host = useRef<HTMLDivElement>(null);
  const picture = useRef<HTMLDivElement>(null);
  const overlay = useRef<HTMLDivElement>(null);
  const [presenter, setBoard] = useState<NetworkPresenter | null>(null);
  const [flat, setFlat] = useState(false);
  useEffect(() => {
    const created = new NetworkPresenter(store, picture.current!, overlay.current!, flat);
    const cleanups = [
      attachOrbitGestures(created, host.current!),
      addKeyBindings(networkKeyBindings(created)),
      exposeTestHooks(created),
      whenContextStaysLost(created, () => setFlat(true)),
      () => created.dispose(),
    ];
    setBoard(created);
    currentPresenter.set(created);
    return () => cleanups.forEach((cleanup) => cleanup());
  }, [store, flat]);
  return (
    <section class="network" aria-label="Network">
      {presenter && <NetworkToolbar presenter={presenter} />}
      <div class="network-main">
        <div
          ref={host}
          class="network-stage"
          tabIndex={0}
          role="application"
          aria-roledescription="3D view"
          aria-describedby="network-summary"
        >
          <div ref={picture} class="network-picture" />
          <div ref={overlay} class="network-labels" aria-hidden="true" />
          {presenter && <StageOverlay presenter={presenter} host={host.current!} />}
        </div>
        {presenter && <UnitPanel presenter={presenter} />}
      </div>
      {presenter && <TimeBar presenter={presenter} />}
    </section>
  );
}

// Elements that lie over the canvas.
function StageOverlay({ presenter, host }: { presenter: NetworkPresenter; host: HTMLElement }) {
  return (
    <>
      <Summary presenter={presenter} host={host} />
      <WayBar presenter={presenter} />
      <ColourLegend presenter={presenter} />
      <StageTools presenter={presenter} />
      <EmptyHints presenter={presenter} />
      <Tooltip presenter={presenter} />
    </>
  );
}

// The view in words, for screen readers.
function Summary({ presenter, host }: { presenter: NetworkPresenter; host: HTMLElement }) {
  useValue(presenter.store.hello);
  useValue(presenter.store.net);
  useValue(presenter.store.selection);
  useValue(presenter.displayed);
  const text = presenter.summary();
  useLayoutEffect(() => host.setAttribute("aria-label", text), [text]);
  return (
    <p id="network-summary" class="network-hidden">
      {text}. Arrow keys walk from unit to unit, or turn the picture where none is selected; Shift and arrow keys move
      it; [ and ] change the layer, Escape clears the selection.
    </p>
  );
}
