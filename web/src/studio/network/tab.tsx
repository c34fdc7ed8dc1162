// The Network tab: a network's layers in 3D, and all that one can ask of them.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { addKeys } from "../key_bindings";
import { Signal, useValue, type Store } from "../store";
import { Board } from "./presenter";
import { Empty } from "./panels/empty_hints";
import { listen } from "./orbit_gestures";
import { expose } from "./test_hooks";
import { keysOf } from "./network_keys";
import { Legend, Tooltip } from "./panels/colour_legend";
import { SelectionPanel } from "./panels/unit_panel";
import { TimeBar } from "./panels/time_bar";
import { StageTools, Toolbar } from "./panels/network_toolbar";

const boards = new Signal<Board | null>(null);

/** The selected unit, for the side of other tabs; the Network tab shows it itself. */
export function Inspector({ store }: { store: Store }) {
  const board = useValue(boards);
  const tab = useValue(store.tab);
  return board && tab !== "network" ? <SelectionPanel board={board} /> : null;
}

/** The tab. */
export function NetworkTab({ store }: { store: Store }) {
  const host = useRef<HTMLDivElement>(null);
  const picture = useRef<HTMLDivElement>(null);
  const overlay = useRef<HTMLDivElement>(null);
  const [board, setBoard] = useState<Board | null>(null);
  useEffect(() => {
    const made = new Board(store, picture.current!, overlay.current!);
    const ends = [listen(made, host.current!), addKeys(keysOf(made)), expose(made), () => made.dispose()];
    setBoard(made);
    boards.set(made);
    return () => ends.forEach((end) => end());
  }, [store]);
  return (
    <section class="network" aria-label="Network">
      {board && <Toolbar board={board} />}
      <div class="network-main">
        <div ref={host} class="network-stage" tabIndex={0} role="application" aria-roledescription="3D view" aria-describedby="network-summary">
          <div ref={picture} class="network-picture" />
          <div ref={overlay} class="network-labels" aria-hidden="true" />
          {board && <Over board={board} host={host.current!} />}
        </div>
        {board && <SelectionPanel board={board} />}
      </div>
      {board && <TimeBar board={board} />}
    </section>
  );
}

// What lies over the picture.
function Over({ board, host }: { board: Board; host: HTMLElement }) {
  return (
    <>
      <Summary board={board} host={host} />
      <Legend board={board} />
      <StageTools board={board} />
      <Empty board={board} />
      <Tooltip board={board} />
    </>
  );
}

// The picture in words, for who does not see it.
function Summary({ board, host }: { board: Board; host: HTMLElement }) {
  useValue(board.store.hello);
  useValue(board.store.net);
  useValue(board.store.selection);
  useValue(board.seen);
  const text = board.summary();
  useLayoutEffect(() => host.setAttribute("aria-label", text), [text]);
  return (
    <p id="network-summary" class="network-hidden">
      {text}. Arrow keys walk from unit to unit, or turn the picture where none is selected; Shift and arrow keys move it; [ and ] change the
      layer, Escape clears the selection.
    </p>
  );
}
