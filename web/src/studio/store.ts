// The page's state as signals, and the messages it sends; every tab reads and writes it here.
import type {
  AlertSeen, AskAnalysis, AskTrace, AskValue, Ended, Every, FrameHead, FromPage, Hello, Json, Look, Moment, Net, Parameter, Recording, Run,
  Shown, State, TableHead, ToPage,
} from "./messages";
import { VERSION } from "./messages";
import { Signal } from "./signal";
import { Socket } from "./socket";
import { parseNumbers } from "./non_finite";
import { emptyTable, withRows, type Table } from "./tables/table_rows";

export { Signal, useValue } from "./signal";

export const TAB_NAMES = ["network", "plots", "tables", "graph"] as const;
export type TabName = (typeof TAB_NAMES)[number];
export type Connection = "connecting" | "open" | "lost";

/** The selected unit, the same on every tab. */
export interface Selection {
  layer: string;
  unit: number;
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

/** A message to the user that disappears by itself. */
export interface Notice {
  id: number;
  text: string;
  tone: "problem" | "done";
}

type Question = Omit<AskValue, "question"> | Omit<AskTrace, "question"> | Omit<AskAnalysis, "question">;
type PendingQuestion = { resolve: (value: Json) => void; reject: (error: Error) => void };

const IDLE_STATE: State = { status: "idle", counters: {}, can: [], items: 0, batch: 0, step_n: 10, message: "" };
const DEFAULT_VIEW: ViewSettings = {
  variable: "", item: 0, moment: -1, raster: 0, mode: "auto",
  train: { unit: "auto", count: 1 }, test: { unit: "trial", count: 1 },
};
const TABLES_WAIT_MS = 50; // rows come in bursts; tables and plots re-render once per burst
const MAX_TABLES_WAIT_MS = 1000; // long tables take longer to draw, and grow relatively less with each row
const MAX_ALERTS = 5000;

/** The page's store. */
export class Store {
  readonly hello = new Signal<Hello | null>(null);
  readonly net = new Signal<Net | null>(null);
  readonly moments = new Signal<Moment[]>([]);
  readonly state = new Signal<State>(IDLE_STATE);
  readonly parameters = new Signal<Parameter[]>([]);
  readonly tables = new Signal<ReadonlyMap<string, Table>>(new Map());
  readonly alerts = new Signal<AlertSeen[]>([]); // the newest
  readonly alertCount = new Signal(0); // total number received
  readonly recordings = new Signal<Recording[]>([]);
  readonly runs = new Signal<Run[]>([]);
  readonly run = new Signal(-1);
  readonly controller = new Signal("nobody");
  readonly viewers = new Signal(0);
  readonly connection = new Signal<Connection>("connecting");
  readonly refused = new Signal(false); // the server is up and rejects this page
  readonly ended = new Signal<Ended | null>(null); // the server's farewell, if it sent one
  readonly reason = new Signal(""); // why the server closed the connection, if it said so
  readonly selection = new Signal<Selection | null>(null);
  readonly viewSettings = new Signal<ViewSettings>(DEFAULT_VIEW);
  readonly notices = new Signal<Notice[]>([]);
  readonly tab = new Signal<TabName>(tabFromHash());

  private readonly socket: Socket;
  private readonly frameReaders = new Set<(head: FrameHead, bytes: Uint8Array) => void>();
  private readonly shownReaders = new Set<(shown: Shown) => void>();
  private readonly questions = new Map<number, PendingQuestion>();
  private pendingTables = new Map<string, Table>(); // tables newer than the signal's
  private tablesTimer = 0;
  private lastLook = ""; // the last look sent, without its number
  private lookCount = 0;
  private questionCount = 0;
  private noticeCount = 0;

  constructor(address: string) {
    this.socket = new Socket(address, {
      onLost: (reason) => this.handleLoss(reason),
      onRefused: (refused) => this.refused.set(refused),
      onMessage: (message) => this.handleMessage(message),
      onFrame: (head, bytes) => this.frameReaders.forEach((read) => read(head, bytes)),
      onGarbled: (text) => this.notice(`The server said something that this page does not understand: ${text}.`),
    });
    for (const signal of [this.viewSettings, this.selection, this.tab, this.net]) signal.subscribe(() => this.sendLook());
  }

  /** Connect, and reconnect when the connection is lost. */
  start(): void {
    this.tab.subscribe((name) => history.replaceState(null, "", `#${name}`)); // a reload opens the same tab
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
    this.socket.retryNow();
  }

  /** The number of the current look; frames of earlier ones are stale. */
  get lookNumber(): number {
    return this.lookCount;
  }

  /** Call `read` for each frame, which is one layer of a state; returns a function that unsubscribes. */
  onFrame(read: (head: FrameHead, bytes: Uint8Array) => void): () => void {
    this.frameReaders.add(read);
    return () => this.frameReaders.delete(read);
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

  /** Send a message; a notice tells the user if not connected. */
  send(message: FromPage): boolean {
    const isSent = this.socket.send(message);
    const isSilent = message.kind === "look" || message.kind === "seen";
    if (!isSent && !isSilent) this.notice("Not connected to the studio's server: nothing was sent.");
    return isSent;
  }

  /** Send a request; resolves with the response. */
  ask(question: Question): Promise<Json> {
    const number = ++this.questionCount;
    return new Promise((resolve, reject) => {
      this.questions.set(number, { resolve, reject });
      if (this.socket.send({ ...question, question: number } as FromPage)) return;
      this.questions.delete(number);
      reject(new Error("not connected"));
    });
  }

  /** Request an action of the run; if no page has control, this one gets it. */
  act(action: string, options: { count?: number; item?: number } = {}): void {
    this.send({ kind: "act", action, ...options });
  }

  /** Change a parameter. */
  change(name: string, value: Json): void {
    this.send({ kind: "change", name, value });
  }

  /** Show a notice to the user. */
  notice(text: string, tone: Notice["tone"] = "problem"): void {
    const remaining = this.notices.get().filter((notice) => notice.text !== text);
    this.notices.set([...remaining.slice(-3), { id: ++this.noticeCount, text, tone }]);
  }

  /** Remove a notice. */
  dismiss(id: number): void {
    this.notices.set(this.notices.get().filter((notice) => notice.id !== id));
  }

  private handleLoss(reason: string): void {
    this.reason.set(reason);
    this.connection.set("lost");
    this.lastLook = "";
    for (const { reject } of this.questions.values()) reject(new Error("the connection was lost"));
    this.questions.clear();
  }

  private handleMessage(message: ToPage): void {
    switch (message.kind) {
      case "hello": return this.receiveHello(message);
      case "net_came": return this.receiveNet(message.net);
      case "moments": return this.receiveMoments(message.came, message.gone);
      case "state_came": return this.receiveState(message);
      case "parameters_came": return this.parameters.set(message.parameters);
      case "table_came": return this.receiveTable(message.table);
      case "rows": return this.receiveRows(message);
      case "alerts_came": return this.receiveAlerts(message.alerts);
      case "recordings_came": return this.receiveRecordings(message.recordings, message.saved);
      case "runs_came": return this.receiveRuns(message);
      case "shown": return this.shownReaders.forEach((read) => read(message));
      case "answer": return this.popQuestion(message.question)?.resolve(message.value);
      case "problem": return this.receiveProblem(message.text, message.question);
      case "ended": return this.receiveEnded(message);
    }
  }

  private receiveEnded(ended: Ended): void {
    this.ended.set(ended);
    this.state.set(ended.state);
  }

  private receiveHello(hello: Hello): void {
    this.socket.resetRetries();
    this.ended.set(null);
    if (hello.version !== VERSION) {
      this.notice(`This page speaks version ${VERSION}, the server ${hello.version}: reload the page.`);
    }
    this.pendingTables = new Map(hello.tables.map((head) => [head.name, emptyTable(head)]));
    this.tablesTimer ||= window.setTimeout(() => this.publishTables(), TABLES_WAIT_MS); // their rows are on the way
    this.moments.set(hello.moments);
    this.alertCount.set(hello.alerts.length);
    this.alerts.set(hello.alerts);
    this.recordings.set(hello.recordings);
    this.receiveRuns(hello);
    this.parameters.set(hello.parameters);
    this.receiveState(hello);
    this.connection.set("open");
    this.hello.set(hello);
    this.lastLook = ""; // this server, or this source, has not received it yet
    this.receiveNet(hello.net);
    this.snapMoment();
    this.sendLook();
    this.openTablesTab();
  }

  // A source that is only a table opens on the Tables tab, unless the user has chosen a tab.
  private openTablesTab(): void {
    const tablesOnly = !this.net.get() && !this.state.get().can.length && this.pendingTables.size > 0;
    if (tablesOnly && !location.hash) this.tab.set("tables");
  }

  private receiveRuns({ runs, run }: { runs: Run[]; run: number }): void {
    this.runs.set(runs);
    this.run.set(run);
  }

  private receiveAlerts(alerts: AlertSeen[]): void {
    this.alertCount.set(this.alertCount.get() + alerts.length);
    this.alerts.set([...this.alerts.get(), ...alerts].slice(-MAX_ALERTS));
  }

  private receiveNet(net: Net | null): void {
    const { variable, item } = this.viewSettings.get();
    const names = net?.variables.map(({ name }) => name) ?? [];
    const unit = net?.variables.find(({ of }) => of === "unit") ?? net?.variables[0];
    const selection = this.selection.get();
    const placedLayer = net?.layers.find(({ layer }) => layer.name === selection?.layer);
    if (selection && !(placedLayer && selection.unit < placedLayer.units)) this.selection.set(null);
    if (net && !names.includes(variable)) this.viewSettings.patch({ variable: unit?.name ?? "", item });
    this.net.set(net);
  }

  private receiveMoments(added: Moment[], removedIds: number[]): void {
    const removed = new Set(removedIds);
    const remaining = removed.size ? this.moments.get().filter(({ id }) => !removed.has(id)) : this.moments.get();
    this.moments.set([...remaining, ...added]);
    if (removed.size) this.snapMoment();
  }

  // If the shown moment was thinned out, show its nearest neighbour, never the live one: the user is looking back.
  private snapMoment(): void {
    const { moment } = this.viewSettings.get();
    const ids = this.moments.get().map(({ id }) => id);
    if (moment === -1 || ids.includes(moment)) return;
    const nearest = ids.reduce((best, id) => (Math.abs(id - moment) < Math.abs(best - moment) ? id : best), Infinity);
    this.viewSettings.patch({ moment: ids.length ? nearest : -1 });
  }

  private receiveState(message: { state: State; controller: string; viewers: number }): void {
    this.state.set(message.state);
    this.controller.set(message.controller);
    this.viewers.set(message.viewers);
  }

  private receiveRows(rows: { table: string; first: number; columns: Record<string, Json[]> }): void {
    const table = this.pendingTables.get(rows.table);
    if (table) this.putTable(withRows(table, { ...rows, columns: parseColumns(table.head, rows.columns) }));
  }

  private receiveTable(head: TableHead): void {
    this.putTable(emptyTable(head));
    this.openTablesTab();
  }

  private putTable(table: Table): void {
    this.pendingTables.set(table.head.name, table);
    const wait = Math.min(MAX_TABLES_WAIT_MS, TABLES_WAIT_MS + table.count / 100);
    this.tablesTimer ||= window.setTimeout(() => this.publishTables(), wait);
  }

  private publishTables(): void {
    this.tablesTimer = 0;
    this.tables.set(new Map(this.pendingTables));
  }

  private receiveRecordings(recordings: Recording[], saved: string): void {
    this.recordings.set(recordings);
    if (saved) this.notice(`Saved ${saved}`, "done");
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
    const isHidden = this.tab.get() !== "network" || document.visibilityState === "hidden";
    if (isHidden || !this.net.get() || !this.shownReaders.size) return { variable: "" };
    const selection = this.isWeight(variable) ? this.selection.get() : null;
    return { variable, item, moment, layer: selection?.layer ?? "", unit: selection?.unit ?? -1, raster, train, test };
  }

  private isWeight(variable: string): boolean {
    return this.net.get()?.variables.some(({ name, of }) => name === variable && of === "weight") ?? false;
  }
}

// Number columns encode NaN and infinities as strings; text columns stay as they are.
function parseColumns(head: TableHead, columns: Record<string, Json[]>): Record<string, Json[]> {
  const entries = Object.entries(columns).map(([name, cells]): [string, Json[]] => {
    const isText = head.columns.find((column) => column.name === name)?.type === "text";
    return [name, isText ? cells : cells.map(parseNumbers)];
  });
  return Object.assign(Object.create(null), Object.fromEntries(entries));
}

function tabFromHash(): TabName {
  return TAB_NAMES.find((name) => location.hash === `#${name}`) ?? "network";
}
