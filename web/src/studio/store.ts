// The page's state as signals, and the messages it sends; every tab reads and writes it here.
import type {
  Answers,
  Act,
  AskAnalysis,
  AskBackward,
  AskCheckpoints,
  AskCurves,
  AskGraph,
  AskRunColumns,
  AskRunDetails,
  AskRuns,
  AskSample,
  AskSlice,
  AskStatistics,
  AskTensors,
  AskTrace,
  AskValue,
  DeleteRuns,
  Every,
  FromPage,
  Hello,
  Json,
  Look,
  Net,
  NoteRun,
  RestoreRuns,
  TagRuns,
  SampleFrame,
  Shown,
  SliceFrame,
  ToPage,
} from "./messages";
import { VERSION } from "./messages";
import { NOTHING_SAID, reduce, type PageState } from "./page_state";
import { readPlace, readRun, writePlace } from "./page_place";
import { Signal } from "./signal";
import type { SocketListener, Transport } from "./socket";

export { Signal, useValue } from "./signal";

export const TAB_NAMES = [
  "runs",
  "network",
  "plots",
  "tables",
  "samples",
  "graph",
  "summary",
  "backward",
  "compare",
] as const;
export type TabName = (typeof TAB_NAMES)[number];
export type Connection = "connecting" | "open" | "lost";

/** The selected unit, the same on every tab. */
export interface Selection {
  layer: string;
  unit: number;
  module?: string; // the module that was selected as a whole: the layer has what it returned
}

/** What the Network tab shows, and how. */
export interface ViewSettings {
  variable: string; // "" until a network arrives
  item: number; // index in the batch
  moment: number; // -1: live
  raster: number; // number of moments as an axis; 0: none
  mode: string; // "auto", "bars", "cells", "raster": used by the Network tab only
  train: Every; // how often states are recorded
  test: Every;
}

/** What the inspector shows. */
export interface Inspected {
  layer: string;
  parameters: boolean; // whether one of its parameters, or of their gradients
  also: string; // a variable beside that of the Network tab; "": none
}

/** A message to the user that disappears by itself. */
export interface Notice {
  id: number;
  text: string;
  tone: "problem" | "done";
  undo?: () => void; // takes back what it tells of
}

/** A binary answer: its header and its payload. */
export interface BinaryAnswer<Head> {
  head: Head;
  bytes: Uint8Array;
}
export type SampleBytes = BinaryAnswer<SampleFrame>;
export type SliceBytes = BinaryAnswer<SliceFrame>;

/** A question without its number. */
export type Unnumbered<T> = T extends { question: number } ? Omit<T, "question"> : never;
type RunRequest = AskCheckpoints | AskCurves | AskRunColumns | AskRunDetails | AskRuns | RunChange;
type RunChange = DeleteRuns | NoteRun | RestoreRuns | TagRuns;
type LayerRequest = AskValue | AskTrace | AskTensors | AskSlice | AskStatistics;
type Question = Unnumbered<RunRequest | LayerRequest | AskGraph | AskBackward | AskSample | AskAnalysis>;
type AnswerTo<Kind> = Kind extends keyof Answers ? Answers[Kind] : Json;
type AnyAnswer = Json | BinaryAnswer<SampleFrame | SliceFrame>;
type PendingQuestion = { resolve: (value: AnyAnswer) => void; reject: (error: Error) => void };

const DEFAULT_VIEW: ViewSettings = {
  variable: "",
  item: 0,
  moment: -1,
  raster: 0,
  mode: "auto",
  train: { unit: "auto", count: 1 },
  test: { unit: "trial", count: 1 },
};
const PICTURE_CELLS = 2048; // of a small picture
const TABLES_WAIT_MS = 50; // tables and plots re-render once per burst of rows
const MAX_TABLES_WAIT_MS = 1000;

/** The page's store. */
export class Store {
  // What the server says, one signal for each part of `page`.
  readonly hello = new Signal<PageState["hello"]>(null);
  readonly net = new Signal<PageState["net"]>(null);
  readonly moments = new Signal(NOTHING_SAID.moments);
  readonly state = new Signal(NOTHING_SAID.state);
  readonly parameters = new Signal(NOTHING_SAID.parameters);
  readonly tables = new Signal(NOTHING_SAID.tables);
  readonly samples = new Signal(NOTHING_SAID.samples);
  readonly alerts = new Signal(NOTHING_SAID.alerts);
  readonly alertCount = new Signal(0);
  readonly recordings = new Signal(NOTHING_SAID.recordings);
  readonly runs = new Signal(NOTHING_SAID.runs);
  readonly run = new Signal(-1);
  readonly report = new Signal<PageState["report"]>(null); // what a report says about itself; null where a server answers
  readonly backward = new Signal<PageState["backward"]>(null); // a pass of the readable autograd; null for all else
  readonly comparison = new Signal<PageState["comparison"]>(null); // of two side by side
  readonly ranks = new Signal<PageState["ranks"]>(null); // of a run of several processes
  readonly runList = new Signal(NOTHING_SAID.runList);
  readonly controller = new Signal(NOTHING_SAID.controller);
  readonly viewers = new Signal(0);
  readonly outcome = new Signal<PageState["outcome"]>(null);
  readonly ended = new Signal<PageState["ended"]>(null);

  readonly connection = new Signal<Connection>("connecting");
  readonly retrying = new Signal(false); // the user asked to reconnect, and the attempt has not ended
  readonly refused = new Signal(false); // the server is up and rejects this page
  readonly reason = new Signal(""); // why the server closed the connection, if it said so
  readonly selection = new Signal<Selection | null>(null); // of every tab
  readonly colourBy = new Signal("kind"); // what graph and 3D view are coloured by; "kind": boxes by kind, slabs by values
  readonly badLayers = new Signal<ReadonlyMap<string, string>>(new Map()); // of what the Network tab shows: layer -> "NaN"
  readonly viewSettings = new Signal<ViewSettings>(DEFAULT_VIEW);
  readonly openLayers = new Signal<string[]>([]); // that the Network tab shows; empty: all
  readonly picturedLayers = new Signal<string[]>([]); // that have a picture in the Graph tab
  readonly inspected = new Signal<Inspected | null>(null); // what a live run must send for it
  readonly sampleStep = new Signal(-1); // the step at which samples are looked at; -1: the newest
  readonly notices = new Signal<Notice[]>([]);
  readonly tab = new Signal<TabName>(tabFromHash());

  readonly socket: Transport; // its frames go to who draws them
  private readonly shownReaders = new Set<(shown: Shown) => void>();
  private readonly questions = new Map<number, PendingQuestion>();
  private place = readPlace(); // the selection that the address names, until it is there
  private opened: FromPage | null = readRun() < 0 ? null : { kind: "open_run", id: readRun() }; // what the user opened
  private page = NOTHING_SAID; // may be newer than the signals
  private tablesTimer = 0;
  private lastLook = ""; // the last look sent, without its number
  private lookCount = 0;
  private followedMoment = -1;
  private questionCount = 0;
  private noticeCount = 0;

  constructor(connect: (listener: SocketListener) => Transport) {
    this.socket = connect({
      onLost: (reason) => this.handleLoss(reason),
      onRefused: (refused) => this.refused.set(refused),
      onMessage: (message) => this.handleMessage(message),
      onBinaryAnswer: (head, bytes) => this.popQuestion(head.question)?.resolve({ head, bytes }),
      onGarbled: (text) => this.notice(`The server said something that this page does not understand: ${text}.`),
    });
    this.viewSettings.subscribe(() => this.followMoment());
    const looks = [this.viewSettings, this.selection, this.tab, this.net, this.openLayers, this.picturedLayers];
    for (const signal of [...looks, this.inspected]) signal.subscribe(() => this.sendLook());
  }

  /** Connect, and reconnect when the connection is lost. */
  start(): void {
    for (const signal of [this.tab, this.selection]) signal.subscribe(() => this.writePlace()); // a reload opens the same
    window.addEventListener("hashchange", () => this.tab.set(tabFromHash()));
    document.addEventListener("visibilitychange", () => {
      this.sendLook();
      if (document.visibilityState === "visible") this.retry();
    });
    window.addEventListener("online", () => this.retry());
    this.socket.open();
  }

  /** Reconnect now if the connection is lost. */
  retry(): void {
    this.retrying.set(this.socket.retryNow());
  }

  /** The number of the current look; frames of earlier ones are stale. */
  get lookNumber(): number {
    return this.lookCount;
  }

  /** Call `read` when all frames of a state have arrived; returns a function that unsubscribes. */
  onShown(read: (shown: Shown) => void): () => void {
    this.shownReaders.add(read);
    this.sendLook(); // frames sent before anyone could draw them would be lost
    return () => {
      this.shownReaders.delete(read);
      this.sendLook();
    };
  }

  /** Ask for the state again with the next look, even if that is the same. */
  forgetLook(): void {
    this.lastLook = "";
  }

  /** Send a message; a notice tells the user if not connected. */
  send(message: FromPage): boolean {
    const isSent = this.socket.send(message);
    const isSilent = message.kind === "look" || message.kind === "seen";
    if (!isSent && !isSilent) this.notice("Not connected to the studio's server: nothing was sent.");
    if (isSent && message.kind.startsWith("open_")) {
      this.opened = message;
      this.writePlace();
    }
    return isSent;
  }

  private writePlace(): void {
    const run = this.opened?.kind === "open_run" ? this.opened.id : -1;
    writePlace(this.tab.get(), this.selection.get(), run);
  }

  /** Send a request; resolves with the response. */
  ask<Asked extends Question>(question: Asked): Promise<AnswerTo<Asked["kind"]>> {
    return this.askAny(question) as Promise<unknown> as Promise<AnswerTo<Asked["kind"]>>;
  }

  /** Request the content of a sample: binary for images and sound, JSON for the others. */
  askSample(id: number): Promise<Json | SampleBytes> {
    return this.askAny({ kind: "ask_sample", id }) as Promise<Json | SampleBytes>;
  }

  /** Request the network's drawing, or what it shows of each operation. */
  askGraph(part: AskGraph["part"]): Promise<SampleBytes> {
    return this.askAny({ kind: "ask_graph", part }) as Promise<SampleBytes>;
  }

  /** Request the steps of a backward pass. */
  askBackward(): Promise<SampleBytes> {
    return this.askAny({ kind: "ask_backward" }) as Promise<SampleBytes>;
  }

  /** Request a slice of a tensor. */
  askSlice(question: Unnumbered<AskSlice>): Promise<SliceBytes> {
    return this.askAny(question) as Promise<SliceBytes>;
  }

  private askAny(question: Question): Promise<AnyAnswer> {
    const number = ++this.questionCount;
    return new Promise((resolve, reject) => {
      this.questions.set(number, { resolve, reject });
      if (this.socket.send({ ...question, question: number })) return;
      this.questions.delete(number);
      reject(new Error("not connected"));
    });
  }

  /** Note the layers with NaN or infinities. */
  setBadLayers(layers: ReadonlyMap<string, string>): void {
    const isSame = JSON.stringify([...layers]) === JSON.stringify([...this.badLayers.get()]);
    if (!isSame) this.badLayers.set(layers);
  }

  /** The step that is looked at; Infinity for the newest. */
  get shownStep(): number {
    const { moment } = this.viewSettings.get();
    return moment < 0 ? Infinity : (this.moments.get().find(({ id }) => id === moment)?.step ?? Infinity);
  }

  /** Look at samples as they were at a step, -1 for the newest; the network's view goes along. */
  seekStep(step: number): void {
    this.sampleStep.set(step);
    const moments = this.moments.get();
    const reached = moments.filter((candidate) => candidate.step <= step);
    const moment = step < 0 || !moments.length ? -1 : (reached[reached.length - 1] ?? moments[0]).id;
    this.followedMoment = moment;
    this.viewSettings.patch({ moment });
  }

  // The network's slider moves that of the samples.
  private followMoment(): void {
    const { moment } = this.viewSettings.get();
    if (moment === this.followedMoment) return;
    this.followedMoment = moment;
    this.sampleStep.set(moment < 0 ? -1 : (this.moments.get().find(({ id }) => id === moment)?.step ?? -1));
  }

  /** Request an action of the run; if no page has control, this one gets it. */
  act(action: Act["action"], options: { count?: number; item?: number } = {}): void {
    this.send({ kind: "act", action, ...options });
  }

  /** Change a parameter. */
  change(name: string, value: Json): void {
    this.send({ kind: "change", name, value });
  }

  /** Show a notice to the user; with `undo` it has a button for that. */
  notice(text: string, tone: Notice["tone"] = "problem", undo?: () => void): void {
    const remaining = this.notices.get().filter((notice) => notice.text !== text);
    this.notices.set([...remaining.slice(-3), { id: ++this.noticeCount, text, tone, undo }]);
  }

  /** Remove a notice. */
  dismiss(id: number): void {
    this.notices.set(this.notices.get().filter((notice) => notice.id !== id));
  }

  private handleLoss(reason: string): void {
    this.reason.set(reason);
    this.connection.set("lost");
    this.retrying.set(false);
    this.lastLook = "";
    for (const { reject } of this.questions.values()) reject(new Error("the connection was lost"));
    this.questions.clear();
  }

  private handleMessage(message: ToPage): void {
    const before = this.page;
    this.page = reduce(before, message);
    if (message.kind === "hello") this.receiveHello(message);
    else if (message.kind === "shown") this.shownReaders.forEach((read) => read(message));
    else if (message.kind === "answer") this.popQuestion(message.question)?.resolve(message.value);
    else if (message.kind === "problem") this.receiveProblem(message.text, message.question);
    else if (message.kind === "recordings_came" && message.saved) this.notice(`Saved ${message.saved}`, "done");
    if (this.page.caughtUp && this.page !== before) this.publish(before);
  }

  private receiveHello(hello: Hello): void {
    this.socket.resetRetries();
    if (hello.version !== VERSION) {
      this.notice(`This page speaks version ${VERSION}, the server ${hello.version}: reload the page.`);
    }
  }

  // Set the signals; what a server, or another source, says of its past is shown at once when it has caught up.
  private publish(before: PageState): void {
    const { page } = this;
    this.moments.set(page.moments);
    this.samples.set(page.samples);
    this.alertCount.set(page.alertCount);
    this.alerts.set(page.alerts);
    this.recordings.set(page.recordings);
    this.runs.set(page.runs);
    this.run.set(page.run);
    this.report.set(page.report);
    this.backward.set(page.backward);
    this.comparison.set(page.comparison);
    this.ranks.set(page.ranks);
    this.runList.set(page.runList);
    this.parameters.set(page.parameters);
    this.outcome.set(page.outcome);
    this.ended.set(page.ended);
    this.state.set(page.state);
    this.controller.set(page.controller);
    this.viewers.set(page.viewers);
    if (!before.caughtUp) {
      if (this.connection.get() !== "open" && this.opened && !this.isOpened()) this.send(this.opened); // again
      this.connection.set("open");
      this.retrying.set(false);
      this.hello.set(page.hello);
      if (!location.hash && page.report) this.tab.set("summary");
      else if (!location.hash && page.backward) this.tab.set("backward");
      else if (!location.hash && page.comparison) this.tab.set("compare");
      if (Boolean(page.comparison) !== (this.colourBy.get() === "difference"))
        this.colourBy.set(page.comparison ? "difference" : "kind"); // where two differ is what a comparison is for
      this.lastLook = ""; // it has not received it yet
      this.openRunsTab();
    }
    if (page.net !== this.net.get()) this.publishNet(page);
    if (page.moments !== before.moments || !before.caughtUp) this.snapMoment();
    if (page.tables !== before.tables || !before.caughtUp) this.publishTables(before);
    if (!before.caughtUp) this.sendLook();
  }

  // Whether the run that the user opened is shown: of a folder, the server begins with another one.
  private isOpened(): boolean {
    return this.opened?.kind !== "open_run" || this.opened.id === this.page.run;
  }

  private publishTables(before: PageState): void {
    const { tables } = this.page;
    const changed = [...tables.values()].filter((table) => before.tables.get(table.head.name) !== table);
    this.scheduleTables(Math.max(0, ...changed.map(({ count }) => count)));
    if (tables.size > before.tables.size) this.openTablesTab();
  }

  // Long tables take longer to draw, and grow relatively less with each row.
  private scheduleTables(rows: number): void {
    const wait = Math.min(MAX_TABLES_WAIT_MS, TABLES_WAIT_MS + rows / 100);
    this.tablesTimer ||= window.setTimeout(() => {
      this.tablesTimer = 0;
      this.tables.set(this.page.tables);
    }, wait);
  }

  // A source that is only a table opens on the Tables tab, unless the user has chosen a tab.
  private openTablesTab(): void {
    const { net, state, tables } = this.page;
    const tablesOnly = !net && !state.can.length && tables.size > 0;
    if (tablesOnly && !location.hash) this.tab.set("tables");
  }

  // A folder of several runs opens on their list, unless one of them is live or the user has chosen a tab.
  private openRunsTab(): void {
    const { hello, runList } = this.page;
    if (runList.total > 1 && hello?.source !== "live" && !location.hash) this.tab.set("runs");
  }

  private publishNet({ net }: PageState): void {
    const { variable, item } = this.viewSettings.get();
    const names = net?.variables.map(({ name }) => name) ?? [];
    const unit = net?.variables.find(({ of }) => of === "unit") ?? net?.variables[0];
    const selection = this.selection.get();
    const placedLayer = net?.layers.find(({ layer }) => layer.name === selection?.layer);
    if (selection && !(placedLayer && selection.unit < placedLayer.units)) this.selection.set(null);
    if (net && this.isOpened()) this.restoreSelection(net);
    if (net && !names.includes(variable)) this.viewSettings.patch({ variable: unit?.name ?? "", item });
    this.net.set(net);
  }

  // The selection that the address names, once its network is there.
  private restoreSelection(net: Net): void {
    const { place } = this;
    const unit = place && (net.layers.find(({ layer }) => layer.name === place.layer)?.units ?? 0);
    if (!place || !unit) return;
    this.place = null;
    if (!this.selection.get()) this.selection.set({ ...place, unit: Math.min(place.unit, unit - 1) });
  }

  // If the shown moment was thinned out, show its nearest neighbour, never the live one: the user is looking back.
  private snapMoment(): void {
    const { moment } = this.viewSettings.get();
    const ids = this.moments.get().map(({ id }) => id);
    if (moment === -1 || ids.includes(moment)) return;
    const nearest = ids.reduce((best, id) => (Math.abs(id - moment) < Math.abs(best - moment) ? id : best), Infinity);
    this.viewSettings.patch({ moment: ids.length ? nearest : -1 });
  }

  private popQuestion(question: number): PendingQuestion | undefined {
    const pending = this.questions.get(question);
    this.questions.delete(question);
    return pending;
  }

  private receiveProblem(text: string, question: number): void {
    const pending = this.popQuestion(question);
    if (pending) pending.reject(new Error(text));
    else this.notice(text);
  }

  private sendLook(): void {
    if (this.connection.get() !== "open") return;
    const look = this.currentLook();
    const serialized = JSON.stringify(look);
    if (serialized === this.lastLook) return;
    this.lastLook = serialized;
    this.send({ kind: "look", look: ++this.lookCount, ...look });
  }

  private currentLook(): Omit<Look, "kind" | "look"> {
    const { variable, item, moment, raster, train, test } = this.viewSettings.get();
    const shown = this.inspected.get();
    const pictured = this.tab.get() === "graph" ? this.picturedLayers.get() : [];
    const isAway = this.tab.get() !== "network" && !shown && !pictured.length;
    const isHidden = isAway || document.visibilityState === "hidden";
    if (isHidden || !this.net.get() || !this.shownReaders.size) return { variable: "" };
    const inspected = { inspected: shown?.parameters ? shown.layer : "", also: shown?.also ?? "" };
    if (this.tab.get() !== "network") {
      const layers = [...new Set([...(shown ? [shown.layer] : []), ...pictured])];
      const seen = pictured.length ? this.unitVariable(variable) : variable;
      return { variable: seen, item, moment, train, test, layers, most_cells: PICTURE_CELLS, ...inspected };
    }
    const selection = this.isWeight(variable) ? this.selection.get() : null;
    return {
      variable,
      item,
      moment,
      layer: selection?.layer ?? "",
      unit: selection?.unit ?? -1,
      raster,
      train,
      test,
      layers: this.openLayers.get(),
      ...inspected,
    };
  }

  /** A variable that each unit has: this one, or instead of weights the first. */
  unitVariable(variable: string): string {
    const first = this.net.get()?.variables.find(({ of }) => of === "unit");
    return this.isWeight(variable) ? (first?.name ?? variable) : variable;
  }

  private isWeight(variable: string): boolean {
    return this.net.get()?.variables.some(({ name, of }) => name === variable && of === "weight") ?? false;
  }
}

function tabFromHash(): TabName {
  return TAB_NAMES.find((name) => location.hash.split("&")[0] === `#${name}`) ?? "network";
}
