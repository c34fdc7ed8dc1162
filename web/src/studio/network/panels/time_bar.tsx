// The time bar below the view: which recorded moment is shown.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Moment } from "../../messages";
import { Icon } from "../../shell/icons";
import { useLivenessLabel } from "../../shell/liveness";
import { useValue } from "../../store";
import type { NetworkPresenter } from "../presenter";
import {
  isBehind,
  moveBy,
  moveTo,
  advance,
  indexOfPosition,
  togglePlay,
  formatMoment,
  type TimelinePosition,
} from "../values/timeline";

const SPEEDS = [1, 2, 5, 10, 30];

/** The slider's current position. */
export function currentPosition(presenter: NetworkPresenter): TimelinePosition {
  const { moment } = presenter.store.viewSettings.get();
  return { live: moment < 0, moment, isPlaying: presenter.isPlaying.get() };
}

/** Go to a position; the store requests it from the server. */
export function seek(presenter: NetworkPresenter, position: TimelinePosition): void {
  presenter.isPlaying.set(position.isPlaying);
  presenter.store.viewSettings.patch({ moment: position.live ? -1 : position.moment });
}

/** Step forward or back by a number of moments; stepping leaves live mode. */
export function stepBy(presenter: NetworkPresenter, count: number): void {
  seek(presenter, moveBy(presenter.store.moments.get(), currentPosition(presenter), count));
}

/** The time bar. */
export function TimeBar({ presenter }: { presenter: NetworkPresenter }) {
  const moments = useValue(presenter.store.moments);
  const { moment } = useValue(presenter.store.viewSettings);
  const playing = useValue(presenter.isPlaying);
  const displayed = useValue(presenter.displayed);
  const newestLabel = useLivenessLabel(presenter.store) === "Live" ? "Live" : "Newest";
  usePlay(presenter, playing);
  const position: TimelinePosition = { live: moment < 0, moment, isPlaying: playing };
  const index = indexOfPosition(moments, position);
  const isEmpty = !moments.length;
  const shownMoment = moments.find(({ id }) => id === displayed.moment) ?? moments[index];
  const state = useValue(presenter.store.state);
  const isLate = position.live && isBehind(shownMoment, state);
  const step = (count: number) => () => stepBy(presenter, count);
  const atStart = isEmpty || index <= 0;
  const atEnd = isEmpty || (!position.live && index >= moments.length - 1) || position.live;
  return (
    <div class="network-time" role="group" aria-label="Time">
      <div class="joined">
        <StepButton name="First moment" label="|◂" disabled={atStart} run={() => seek(presenter, moveTo(moments, 0))} />
        <StepButton name="10 moments back" label="−10" disabled={atStart} run={step(-10)} />
        <StepButton name="1 moment back" label="−1" disabled={atStart} run={step(-1)} />
        <button
          aria-label={playing ? "Pause" : "Play"}
          title={playing ? "Pause (K)" : "Play (K)"}
          disabled={moments.length < 2}
          onClick={() => seek(presenter, togglePlay(moments, currentPosition(presenter)))}
        >
          {playing ? <PauseIcon /> : <Icon name="play" />}
        </button>
        <StepButton name="1 moment on" label="+1" disabled={atEnd} run={step(1)} />
        <StepButton name="10 moments on" label="+10" disabled={atEnd} run={step(10)} />
      </div>
      <Slider presenter={presenter} moments={moments} position={index} />
      <output
        class="when"
        aria-live="off"
        title={
          isLate
            ? `${formatMoment(shownMoment)}; step ${String(state.counters.Step)}, where the run is, was not recorded`
            : formatMoment(shownMoment)
        }
      >
        {isLate && "last recorded: "}
        {formatMoment(shownMoment)}
      </output>
      <label title="Moments a second when it plays">
        <span class="soft">Speed</span>
        <SpeedChoice presenter={presenter} />
      </label>
      <button
        class={`live ${position.live ? "on" : ""}`}
        aria-pressed={position.live}
        title="Follow the newest moment (End)"
        onClick={() => seek(presenter, { live: true, moment: -1, isPlaying: false })}
      >
        <span class="dot" aria-hidden="true" /> {newestLabel}
      </button>
    </div>
  );
}

function SpeedChoice({ presenter }: { presenter: NetworkPresenter }) {
  const { speed } = useValue(presenter.settings);
  const set = (text: string): void => presenter.settings.patch({ speed: Number(text) });
  return (
    <select id="network-speed" value={String(speed)} onChange={({ currentTarget }) => set(currentTarget.value)}>
      {SPEEDS.map((choice) => (
        <option key={choice} value={String(choice)}>
          {choice}/s
        </option>
      ))}
    </select>
  );
}

function StepButton({
  name,
  label,
  disabled,
  run,
}: {
  name: string;
  label: string;
  disabled: boolean;
  run: () => void;
}) {
  return (
    <button aria-label={name} title={name} disabled={disabled} onClick={run}>
      {label}
    </button>
  );
}

// During a drag the slider keeps the moments it started with, so that its end does not move.
function Slider({
  presenter,
  moments,
  position,
}: {
  presenter: NetworkPresenter;
  moments: readonly Moment[];
  position: number;
}) {
  const [drag, setDrag] = useState<{ list: readonly Moment[]; index: number } | null>(null);
  const list = drag?.list ?? moments;
  const value = drag?.index ?? position;
  const startDrag = (): void => {
    const dragEnd = new AbortController();
    const release = (): void => {
      dragEnd.abort();
      setDrag(null);
    };
    // Added at once, not in an effect: a short click would be over by then, and the drag would never end.
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, release, { signal: dragEnd.signal });
    setDrag({ list: moments, index: position });
  };
  const move = (index: number): void => {
    setDrag((current) => current && { ...current, index });
    const current = presenter.store.moments.get(); // some of the moments from the start of the drag may be gone
    seek(presenter, moveTo(current, indexOfPosition(current, moveTo(list, index))));
  };
  return (
    <input
      id="network-slider"
      type="range"
      aria-label="Moment"
      aria-valuetext={formatMoment(list[value])}
      min={0}
      max={Math.max(0, list.length - 1)}
      step={1}
      value={Math.max(0, value)}
      disabled={list.length < 2}
      onPointerDown={startDrag}
      onInput={({ currentTarget }) => move(Number(currentTarget.value))}
    />
  );
}

// Play moment after moment, each only after the one before was drawn.
function usePlay(presenter: NetworkPresenter, playing: boolean): void {
  const { speed } = useValue(presenter.settings);
  const due = useRef(0);
  useEffect(() => {
    if (!playing) return;
    due.current = performance.now() + 1000 / speed;
    const timer = window.setInterval(() => {
      const position = currentPosition(presenter);
      if (!position.isPlaying) return; // just paused: the timer is cleared at the next render
      if (position.live) return presenter.isPlaying.set(false);
      if (performance.now() < due.current || presenter.displayed.get().moment !== position.moment) return;
      due.current = performance.now() + 1000 / speed - 8;
      seek(presenter, advance(presenter.store.moments.get(), position));
    }, 16);
    return () => window.clearInterval(timer);
  }, [playing, speed]);
}

function PauseIcon() {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
      <path d="M4 3h3v10H4zm5 0h3v10H9z" fill="currentColor" />
    </svg>
  );
}
