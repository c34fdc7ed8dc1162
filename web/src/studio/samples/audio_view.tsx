// Logged sound: its waveform, a button that plays it; a click on the waveform plays from there.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { Icon } from "../shell/icons";
import { useValue, type SampleBytes } from "../store";
import { theme } from "../theme";
import { waveform } from "./sample_shapes";

const [WIDTH, CHANNEL_HEIGHT, SHOWN_HEIGHT] = [800, 112, 56]; // of the canvas, in its own pixels; as shown, by channel
const [MIN_RATE, MAX_RATE] = [8000, 96000]; // what every browser plays

let audio: AudioContext | null = null; // made at the first click: browsers refuse it before
let stopOther: (() => void) | null = null; // one sound plays at a time

/** The waveform and its button. */
export function AudioView({ head, bytes, label }: SampleBytes & { label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const themeName = useValue(theme);
  const [channels, length] = head.shape;
  const numbers = useMemo(() => new Int16Array(bytes.buffer, bytes.byteOffset, channels * length), [bytes]);
  const player = usePlayer(numbers, channels, length, head.rate);
  const duration = length / head.rate;
  useLayoutEffect(() => {
    if (canvas.current) paintWaveform(canvas.current, numbers, channels, length);
  }, [bytes, themeName]);
  const seek = (event: MouseEvent): void => {
    const box = canvas.current!.getBoundingClientRect();
    player.play(((event.clientX - box.left) / box.width) * duration);
  };
  return (
    <div class="sample-audio">
      <button
        aria-label={player.isPlaying ? `Stop ${label}` : `Play ${label}`}
        onClick={() => (player.isPlaying ? player.stop() : player.play(0))}
      >
        <Icon name={player.isPlaying ? "stop" : "play"} />
      </button>
      <div class="waveform">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Waveform of ${label}`}
          width={WIDTH}
          height={CHANNEL_HEIGHT * channels}
          style={{ height: `${SHOWN_HEIGHT * channels}px` }}
          onClick={seek}
        />
        {player.isPlaying && <span class="playhead" style={{ left: `${(player.position / duration) * 100}%` }} />}
      </div>
      <span class="soft">
        <span>{formatDuration(player.isPlaying ? player.position : duration)}</span>
        <span>
          {(head.rate / 1000).toLocaleString("en")} kHz{channels > 1 ? `, ${channels} channels` : ""}
        </span>
      </span>
    </div>
  );
}

function usePlayer(numbers: Int16Array, channels: number, length: number, rate: number) {
  const [position, setPosition] = useState(-1); // in seconds; -1: silent
  const stopped = useRef<() => void>(() => undefined);
  const stop = (): void => stopped.current();
  const play = (from: number): void => {
    stopOther?.();
    audio ??= new AudioContext();
    void audio.resume();
    const playedRate = Math.min(MAX_RATE, Math.max(MIN_RATE, rate));
    const buffer = audio.createBuffer(channels, length, playedRate);
    for (let channel = 0; channel < channels; channel++) {
      const target = buffer.getChannelData(channel);
      for (let index = 0; index < length; index++) target[index] = numbers[channel * length + index] / 32768;
    }
    const source = audio.createBufferSource();
    source.buffer = buffer;
    source.playbackRate.value = rate / playedRate;
    source.connect(audio.destination);
    const began = audio.currentTime - from;
    let frame = 0;
    const end = (): void => {
      cancelAnimationFrame(frame);
      source.onended = null;
      source.stop();
      source.disconnect();
      stopOther = null;
      setPosition(-1);
    };
    const show = (): void => {
      setPosition(Math.min(length / rate, audio!.currentTime - began));
      frame = requestAnimationFrame(show);
    };
    source.onended = end;
    source.start(0, from * (rate / playedRate));
    stopped.current = stopOther = end;
    show();
  };
  useEffect(() => () => stopped.current(), [numbers]);
  return { isPlaying: position >= 0, position, play, stop };
}

function paintWaveform(canvas: HTMLCanvasElement, numbers: Int16Array, channels: number, length: number): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (let channel = 0; channel < channels; channel++) {
    const middle = (channel + 0.5) * CHANNEL_HEIGHT;
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(0, middle - 0.5, WIDTH, 1);
    context.fillStyle = style.getPropertyValue("--accent");
    waveform(numbers.subarray(channel * length, (channel + 1) * length), WIDTH).forEach(([low, high], column) => {
      const top = middle - (high / 32768) * (CHANNEL_HEIGHT / 2 - 2);
      const bottom = middle - (low / 32768) * (CHANNEL_HEIGHT / 2 - 2);
      context.fillRect(column, top, 1, Math.max(1, bottom - top));
    });
  }
}

function formatDuration(secs: number): string {
  if (secs < 10) return `${secs.toFixed(2)} s`;
  const minutes = Math.floor(secs / 60);
  return minutes ? `${minutes}:${String(Math.floor(secs % 60)).padStart(2, "0")} min` : `${secs.toFixed(1)} s`;
}
