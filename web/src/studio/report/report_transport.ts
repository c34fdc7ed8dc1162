// A report's own answers in place of a server: recorded messages, embedded scenes and samples.
import type {
  Answer,
  AskSlice,
  AskStatistics,
  AskTensors,
  AskTrace,
  AskValue,
  FromPage,
  Json,
  Look,
  Moment,
  Net,
  ToPage,
} from "../messages";
import { splitFrame, type ReadFrame, type SocketListener, type Transport } from "../socket";
import type { SampleFrame } from "../messages";
import type { Frame } from "../network/values/value_ranges";
import { answerFromLayer, parseLayer } from "./layer_answers";
import { ReportBlocks } from "./report_blocks";
import { parseScene, rasterFrame, unitValue, type SceneValues } from "./scene_values";

const NOT_HERE = "That is not in this report.";
const OTHER_STATE = "The tensors of this layer and state are not in this report; the newest states have them.";
const NOTHING_RUNS = "This is a report: nothing runs here, and nothing can be saved.";

/** Answers a page from the data embedded in it. */
export class ReportTransport implements Transport {
  private readonly blocks: ReportBlocks;
  private readonly frameReaders = new Set<ReadFrame>();
  private moments: Moment[] = [];
  private net: Net | null = null;
  private look = 0; // the latest; answers to earlier ones are dropped

  constructor(
    base64: string,
    private readonly listener: SocketListener,
  ) {
    this.blocks = new ReportBlocks(base64);
  }

  open(): void {
    void this.tellAll();
  }

  retryNow(): boolean {
    return false;
  }

  resetRetries(): void {}

  onFrame(read: ReadFrame): () => void {
    this.frameReaders.add(read);
    return () => this.frameReaders.delete(read);
  }

  /** Answer a message; what is not in the report gets a polite sentence. */
  send(message: FromPage): boolean {
    this.answer(message).catch((error: Error) => this.listener.onGarbled(error.message));
    return true;
  }

  private async tellAll(): Promise<void> {
    const block = await this.blocks.read("messages");
    const messages = JSON.parse(new TextDecoder().decode(block!)) as ToPage[];
    for (const message of messages) {
      if (message.kind === "net_came") this.net = message.net;
      if (message.kind === "moments") this.moments = message.came;
      this.listener.onMessage(message);
    }
  }

  private async answer(message: FromPage): Promise<void> {
    if (message.kind === "look") return this.show(message);
    if (message.kind === "ask_value") return this.answerValue(message);
    if (message.kind === "ask_trace") return this.answerTrace(message);
    if (message.kind === "ask_tensors" || message.kind === "ask_statistics" || message.kind === "ask_slice")
      return this.answerTensor(message);
    if (message.kind === "ask_sample") return this.answerEmbedded(message.question, "sample", message.id);
    if (message.kind === "ask_graph") return this.answerEmbedded(message.question, message.kind, message.part!);
    if (message.kind === "seen") return;
    if ("question" in message) return this.answerEmbedded(message.question, message.kind);
    this.listener.onMessage({ kind: "problem", text: NOTHING_RUNS, question: -1 });
  }

  // -- scenes ------------------------------------------------------------------------------------------------------

  private async show(look: Look): Promise<void> {
    this.look = look.look;
    const moment = this.momentOf(look.moment ?? -1);
    if (!look.variable || !this.net) return;
    const scene = moment < 0 ? null : await this.scene(look.variable, moment);
    const frames = look.raster ? await this.rasters(look, moment) : (scene?.frames ?? new Map<string, Frame>());
    if (this.look !== look.look) return;
    const opened = new Set(look.layers ?? []);
    const layers = this.net.layers.map(({ layer }) => layer.name).filter((name) => !opened.size || opened.has(name));
    const missing = layers.filter((name) => !frames.has(name));
    for (const name of layers) this.sendFrame(frames.get(name), look, moment);
    const why = missing.map((name) => scene?.missing[name] ?? "its values are not in this report");
    this.listener.onMessage({ kind: "shown", look: look.look, moment, missing, why });
  }

  private sendFrame(frame: Frame | undefined, look: Look, moment: number): void {
    if (!frame) return;
    const head = { ...frame.head, look: look.look, moment, item: look.item ?? 0 };
    this.frameReaders.forEach((read) => read(head, frame.bytes));
  }

  private async rasters(look: Look, moment: number): Promise<Map<string, Frame>> {
    const shown = this.moments.filter(({ id }) => id <= moment).slice(-(look.raster ?? 1));
    const scenes = await Promise.all(shown.map(({ id }) => this.scene(look.variable, id)));
    const rasters = new Map<string, Frame>();
    for (const { layer, units } of this.net?.layers ?? []) {
      const frames = scenes.map((scene) => scene?.frames.get(layer.name));
      const raster = rasterFrame(frames, units);
      if (raster) rasters.set(layer.name, raster);
    }
    return rasters;
  }

  private momentOf(moment: number): number {
    return moment >= 0 ? moment : (this.moments[this.moments.length - 1]?.id ?? -1);
  }

  private async scene(variable: string, moment: number): Promise<SceneValues | null> {
    const block = await this.blocks.read("scene", variable, moment);
    return block ? parseScene(block) : null;
  }

  // -- questions -----------------------------------------------------------------------------------------------------

  private async answerValue({ question, layer, unit, variable, moment }: AskValue): Promise<void> {
    const scene = await this.scene(variable, this.momentOf(moment));
    const value = unitValue(scene?.frames.get(layer), unit);
    const shape = this.net?.layers.find((placed) => placed.layer.name === layer)?.layer.shape ?? [];
    const isFinite = value !== undefined && Number.isFinite(value);
    const fields = { value: isFinite ? value : null, text: valueText(value), index: unravel(unit, shape) };
    this.listener.onMessage({ kind: "answer", question, value: fields });
  }

  private async answerTrace({ question, layer, unit, variables }: AskTrace): Promise<void> {
    const values: Record<string, Json> = {};
    for (const variable of variables) {
      const scenes = await Promise.all(this.moments.map(({ id }) => this.scene(variable, id)));
      values[variable] = scenes.map((scene) => jsonNumber(unitValue(scene?.frames.get(layer), unit)));
    }
    const moments = this.moments.map(({ id }) => id);
    const steps = this.moments.map(({ step }) => step);
    this.listener.onMessage({ kind: "answer", question, value: { moments, steps, values } });
  }

  private async answerTensor(ask: AskTensors | AskStatistics | AskSlice): Promise<void> {
    const block = await this.blocks.read("layer", ask.layer, this.momentOf(ask.moment ?? -1));
    const answer = block ? answerFromLayer(parseLayer(block), ask) : { problem: OTHER_STATE };
    const { question } = ask;
    if ("slice" in answer) this.listener.onBinaryAnswer({ ...answer.slice[0], question }, answer.slice[1]);
    else if ("value" in answer) this.listener.onMessage({ kind: "answer", question, value: answer.value });
    else this.listener.onMessage({ kind: "problem", text: answer.problem, question });
  }

  // An answer as the server would have sent it, but for the number of its question.
  private async answerEmbedded(question: number, ...key: (string | number)[]): Promise<void> {
    const block = await this.blocks.read(...key);
    if (!block) return this.listener.onMessage({ kind: "problem", text: NOT_HERE, question });
    if (block[0] === "{".charCodeAt(0)) {
      const answer = JSON.parse(new TextDecoder().decode(block)) as Answer;
      this.listener.onMessage({ ...answer, question });
      return;
    }
    const [head, bytes] = splitFrame(block.slice().buffer) as [SampleFrame, Uint8Array];
    this.listener.onBinaryAnswer({ ...head, question }, bytes);
  }
}

// Pictures have 250 steps from the least to the largest number.
function valueText(value: number | undefined): string {
  if (value === undefined) return "not in this report";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  return `≈ ${Number(value.toPrecision(3))}`;
}

function jsonNumber(value: number | undefined): Json {
  if (value === undefined) return null;
  return Number.isFinite(value) ? value : String(value);
}

function unravel(unit: number, shape: readonly number[]): number[] {
  const index: number[] = [];
  for (const length of [...shape].reverse()) {
    index.unshift(unit % length);
    unit = Math.floor(unit / length);
  }
  return index;
}
