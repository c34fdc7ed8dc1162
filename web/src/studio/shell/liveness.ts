// Liveness: whether the shown source can still change, as the label beside the title.
import type { State } from "../messages";
import { useValue, type Store } from "../store";

const SOURCE_LABELS = new Map([
  ["recording", "Recording"],
  ["run", "Run"],
  ["pass", "Pass"],
  ["file", "File"],
  ["comparison", "Comparison"],
  ["nothing", "Waiting"],
]);

/** Whether a status is final: it stays true after the connection is lost. */
export function isOver(status: State["status"]): boolean {
  return status === "done" || status === "failed" || status === "lost";
}

/** The label of a source: "Live" only while more data can come. */
export function livenessLabel(source: string, status: State["status"], connection: string): string {
  if (source !== "live") return SOURCE_LABELS.get(source) ?? source;
  if (status === "done") return "Ended";
  if (status === "failed") return "Failed";
  if (status === "lost") return "Gone";
  return connection === "lost" ? "Last seen" : "Live";
}

/** The label of the current source; "" before it is known. */
export function useLivenessLabel(store: Store): string {
  const hello = useValue(store.hello);
  const { status } = useValue(store.state);
  const connection = useValue(store.connection);
  const report = useValue(store.report);
  if (report) return "Report";
  return hello ? livenessLabel(hello.source, status, connection) : "";
}

/** Where no watch runs, say so, and how to start one; `unit` is what a step of the loop is called. */
export function unwatchedText(kind: string, status: string, unit: string): string {
  const start = "tl.watch(model) beside tl.live, or watch: in a training config, starts one.";
  if (unit === "trial") return "No rules judge a simulation.";
  if (kind === "live" && !isOver(status))
    return `No watch looks at this run's layers: NaN and infinities are reported where the page shows them; dead units, exploding gradients and the like are not found. ${start}`;
  if (kind === "live" || kind === "run")
    return `No watch looked at this run's layers, so no rule judged them. ${start}`;
  return `No rules judge what is shown here: they judge a model while it trains. ${start}`;
}
