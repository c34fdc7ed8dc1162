// The line below the picture: which of the recorded moments is looked at.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Moment } from "../../messages";
import { Icon } from "../../shell/icons";
import { useWord } from "../../shell/liveness";
import { useValue } from "../../store";
import type { Board } from "../presenter";
import { isBehind, moveBy, moveTo, played, positionOf, toggled, told, type Place } from "../values/timeline";

const SPEEDS = [1, 2, 5, 10, 30];

/** Where the slider stands now. */
export function placeNow(board: Board): Place {
  const { moment } = board.store.look.get();
  return { live: moment < 0, moment, playing: board.playing.get() };
}

/** Go there; the store asks the server for it. */
export function goTo(board: Board, place: Place): void {
  board.playing.set(place.playing);
  board.store.look.patch({ moment: place.live ? -1 : place.moment });
}

/** So many moments on or back; those who step look at the past, and stay there. */
export function stepBy(board: Board, count: number): void {
  goTo(board, moveBy(board.store.moments.get(), placeNow(board), count));
}

/** The time bar. */
export function TimeBar({ board }: { board: Board }) {
  const moments = useValue(board.store.moments);
  const { moment } = useValue(board.store.look);
  const playing = useValue(board.playing);
  const seen = useValue(board.seen);
  const newest = useWord(board.store) === "Live" ? "Live" : "Newest";
  usePlay(board, playing);
  const place: Place = { live: moment < 0, moment, playing };
  const position = positionOf(moments, place);
  const none = !moments.length;
  const shown = moments.find(({ id }) => id === seen.moment) ?? moments[position];
  const state = useValue(board.store.state);
  const behind = place.live && isBehind(shown, state);
  const step = (count: number) => () => stepBy(board, count);
  const atStart = none || position <= 0;
  const atEnd = none || (!place.live && position >= moments.length - 1) || place.live;
  return (
    <div class="network-time" role="group" aria-label="Time">
      <div class="joined">
        <Step name="First moment" sign="|◂" off={atStart} run={() => goTo(board, moveTo(moments, 0))} />
        <Step name="10 moments back" sign="−10" off={atStart} run={step(-10)} />
        <Step name="1 moment back" sign="−1" off={atStart} run={step(-1)} />
        <button
          aria-label={playing ? "Pause" : "Play"}
          title={playing ? "Pause (K)" : "Play (K)"}
          disabled={moments.length < 2}
          onClick={() => goTo(board, toggled(moments, placeNow(board)))}
        >
          {playing ? <Pause /> : <Icon name="play" />}
        </button>
        <Step name="1 moment on" sign="+1" off={atEnd} run={step(1)} />
        <Step name="10 moments on" sign="+10" off={atEnd} run={step(10)} />
      </div>
      <Slider board={board} moments={moments} position={position} />
      <output class="when" aria-live="off" title={behind ? `${told(shown)}; step ${String(state.counters.Step)}, where the run is, was not recorded` : told(shown)}>
        {behind && "last recorded: "}
        {told(shown)}
      </output>
      <label title="Moments a second when it plays">
        <span class="soft">Speed</span>
        <Speed board={board} />
      </label>
      <button
        class={`live ${place.live ? "on" : ""}`}
        aria-pressed={place.live}
        title="Follow the newest moment (End)"
        onClick={() => goTo(board, { live: true, moment: -1, playing: false })}
      >
        <span class="dot" aria-hidden="true" /> {newest}
      </button>
    </div>
  );
}

function Speed({ board }: { board: Board }) {
  const { speed } = useValue(board.settings);
  const set = (text: string): void => board.settings.patch({ speed: Number(text) });
  return (
    <select id="network-speed" value={String(speed)} onChange={({ currentTarget }) => set(currentTarget.value)}>
      {SPEEDS.map((one) => (
        <option key={one} value={String(one)}>
          {one}/s
        </option>
      ))}
    </select>
  );
}

function Step({ name, sign, off, run }: { name: string; sign: string; off: boolean; run: () => void }) {
  return (
    <button aria-label={name} title={name} disabled={off} onClick={run}>
      {sign}
    </button>
  );
}

// While somebody drags it, the slider keeps the moments it had when the drag began: its end does not run away.
function Slider({ board, moments, position }: { board: Board; moments: readonly Moment[]; position: number }) {
  const [held, setHeld] = useState<{ list: readonly Moment[]; at: number } | null>(null);
  const list = held?.list ?? moments;
  const value = held?.at ?? position;
  const hold = (): void => {
    const letGo = new AbortController();
    const release = (): void => {
      letGo.abort();
      setHeld(null);
    };
    // Listened for at once, not after the next picture: a short click is over by then, and would never be let go.
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, release, { signal: letGo.signal });
    setHeld({ list: moments, at: position });
  };
  const move = (at: number): void => {
    setHeld((now) => now && { ...now, at });
    const there = board.store.moments.get(); // of those that were there when the drag began, some may be gone
    goTo(board, moveTo(there, positionOf(there, moveTo(list, at))));
  };
  return (
    <input
      id="network-slider"
      type="range"
      aria-label="Moment"
      aria-valuetext={told(list[value])}
      min={0}
      max={Math.max(0, list.length - 1)}
      step={1}
      value={Math.max(0, value)}
      disabled={list.length < 2}
      onPointerDown={hold}
      onInput={({ currentTarget }) => move(Number(currentTarget.value))}
    />
  );
}

// One moment after the other, none before the last one was drawn.
function usePlay(board: Board, playing: boolean): void {
  const { speed } = useValue(board.settings);
  const due = useRef(0);
  useEffect(() => {
    if (!playing) return;
    due.current = performance.now() + 1000 / speed;
    const timer = window.setInterval(() => {
      const place = placeNow(board);
      if (!place.playing) return; // paused a moment ago: the timer ends with the next picture
      if (place.live) return board.playing.set(false);
      if (performance.now() < due.current || board.seen.get().moment !== place.moment) return;
      due.current = performance.now() + 1000 / speed - 8;
      goTo(board, played(board.store.moments.get(), place));
    }, 16);
    return () => window.clearInterval(timer);
  }, [playing, speed]);
}

function Pause() {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
      <path d="M4 3h3v10H4zm5 0h3v10H9z" fill="currentColor" />
    </svg>
  );
}
