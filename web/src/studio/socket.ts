// The WebSocket to the server: connects, reconnects, and splits binary messages.
import type { FrameHead, FromPage, SampleFrame, SliceFrame, ToPage } from "./messages";

const MAGIC = 0x46484354; // "TCHF", read as a little-endian number
const MIN_RETRY_MS = 250;
const MAX_RETRY_MS = 5000;

/** Events of a socket. `refused`: retrying is useless, as the token is not (or no longer) valid. */
export interface SocketListener {
  onLost(reason: string): void;
  onRefused(refused: boolean): void;
  onMessage(message: ToPage): void;
  onBinaryAnswer(head: SampleFrame | SliceFrame, bytes: Uint8Array): void;
  onGarbled(text: string): void;
}

export type AnyHead = FrameHead | SampleFrame | SliceFrame;
/** Called with each frame, which is one layer of a state. */
export type ReadFrame = (head: FrameHead, bytes: Uint8Array) => void;

/** Who answers the page: a server, or the data of a report. */
export interface Transport {
  open(): void;
  onFrame(read: ReadFrame): () => void;
  send(message: FromPage): boolean;
  retryNow(): boolean;
  resetRetries(): void;
}

/** A reconnecting WebSocket. */
export class Socket implements Transport {
  private socket: WebSocket | null = null;
  private readonly frameReaders = new Set<ReadFrame>();
  private timer = 0;
  private tries = 0;

  constructor(
    private readonly address: string,
    private readonly listener: SocketListener,
  ) {}

  open(): void {
    window.clearTimeout(this.timer);
    const socket = new WebSocket(this.address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.listener.onRefused(false);
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => this.handleData(data);
    socket.onclose = ({ reason }) => this.handleClose(socket, reason);
    this.socket = socket;
  }

  /** Call `read` for each frame, which is one layer of a state; returns a function that unsubscribes. */
  onFrame(read: ReadFrame): () => void {
    this.frameReaders.add(read);
    return () => this.frameReaders.delete(read);
  }

  /** Send a message; false if not connected. */
  send(message: FromPage): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  /** Reconnect now instead of after the delay; false if connected. */
  retryNow(): boolean {
    if (this.socket?.readyState === WebSocket.OPEN) return false;
    if (this.socket?.readyState === WebSocket.CONNECTING) return true; // an attempt is under way
    this.tries = 0;
    this.open();
    return true;
  }

  /** The server answered the handshake: the next loss starts with the shortest delay. */
  resetRetries(): void {
    this.tries = 0;
  }

  private async handleClose(socket: WebSocket, reason: string): Promise<void> {
    if (socket !== this.socket) return;
    this.timer = window.setTimeout(() => this.open(), retryDelay(this.tries++));
    this.listener.onLost(reason);
    const refused = await isRefused();
    if (socket === this.socket) this.listener.onRefused(refused);
  }

  private handleData(data: string | ArrayBuffer): void {
    try {
      if (typeof data === "string") this.listener.onMessage(JSON.parse(data) as ToPage);
      else this.handleFrame(...splitFrame(data));
    } catch (error) {
      this.listener.onGarbled(error instanceof Error ? error.message : String(error));
    }
  }

  private handleFrame(head: AnyHead, bytes: Uint8Array): void {
    if ("question" in head) this.listener.onBinaryAnswer(head, bytes);
    else this.frameReaders.forEach((read) => read(head, bytes));
  }
}

/** The socket's address, beside the page's: behind a proxy both have a prefix. */
export function socketAddress(page: string): string {
  const address = new URL("ws", page);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  return address.href;
}

/** Milliseconds before the next attempt: exponential backoff from 0.25 s to 5 s, with jitter. */
export function retryDelay(tries: number, random = Math.random()): number {
  return Math.min(MAX_RETRY_MS, MIN_RETRY_MS * 2 ** Math.min(tries, 10)) * (0.75 + random / 2);
}

/** Split a binary message into its header and its payload. */
export function splitFrame(data: ArrayBuffer): [AnyHead, Uint8Array] {
  const view = new DataView(data);
  if (data.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new Error("a binary message is not a frame");
  const length = view.getUint32(4, true);
  const start = Math.ceil((8 + length) / 8) * 8;
  if (start > data.byteLength) throw new Error("a frame ends inside its header");
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 8, length))) as AnyHead;
  if (start + head.count > data.byteLength) throw new Error("a frame is shorter than it says");
  return [head, new Uint8Array(data, start, head.count)];
}

// A browser does not say why a WebSocket failed; a request to the page's own URL does.
async function isRefused(): Promise<boolean> {
  try {
    return (await fetch("./", { cache: "no-store" })).status === 401;
  } catch {
    return false; // no answer at all: the server is gone, and may come back
  }
}
