// What the server has said so far, reduced to one value. A page that comes late is told the same messages from the start.
import type {
  AlertSeen,
  BackwardCame,
  ComparisonCame,
  Ended,
  Hello,
  Json,
  Moment,
  Net,
  OutcomeCame,
  Parameter,
  RanksCame,
  Recording,
  ReportCame,
  Run,
  RunsCame,
  SampleHead,
  State,
  TableHead,
  ToPage,
  ViewersCame,
} from "./messages";
import { parseNumbers } from "./non_finite";
import { emptyTable, withRows, type Table } from "./tables/table_rows";

const MAX_ALERTS = 5000;
const IDLE_STATE: State = {
  status: "idle",
  counters: {},
  can: [],
  items: 0,
  batch: 0,
  step_n: 10,
  message: "",
  unit: "batch",
  watched: false,
};

/** The page's state as the server tells it. */
export interface PageState {
  hello: Hello | null; // null until the server answered
  caughtUp: boolean; // false while a server that was just reached, or another source, tells what there is
  net: Net | null;
  moments: Moment[];
  state: State;
  parameters: Parameter[];
  tables: ReadonlyMap<string, Table>;
  samples: SampleHead[]; // what was logged beside numbers, by step
  alerts: AlertSeen[]; // the newest
  alertCount: number; // total number received
  recordings: Recording[];
  runs: Run[];
  run: number; // which of them is shown; -1 without a choice
  report: ReportCame | null; // null where a server answers
  backward: BackwardCame | null; // null unless it is a pass of the readable autograd
  comparison: ComparisonCame | null; // of two side by side
  ranks: RanksCame | null; // of a run of several processes
  runList: { total: number; waiting: number; revision: number }; // of a folder; its cells are asked for
  controller: ViewersCame["controller"];
  viewers: number;
  outcome: OutcomeCame | null; // how the run ended, and where it is kept
  ended: Ended | null; // the server's farewell, if it sent one
}

export const NOTHING_SAID: PageState = {
  hello: null,
  caughtUp: false,
  net: null,
  moments: [],
  state: IDLE_STATE,
  parameters: [],
  tables: new Map(),
  samples: [],
  alerts: [],
  alertCount: 0,
  recordings: [],
  runs: [],
  run: -1,
  report: null,
  backward: null,
  comparison: null,
  ranks: null,
  runList: { total: 0, waiting: 0, revision: 0 },
  controller: "nobody",
  viewers: 0,
  outcome: null,
  ended: null,
};

/** The state after a message. Messages that are answers or events leave it as it is. */
export function reduce(page: PageState, message: ToPage): PageState {
  switch (message.kind) {
    case "hello":
      return { ...NOTHING_SAID, hello: message };
    case "caught_up":
      return { ...page, caughtUp: true };
    case "net_came":
      return { ...page, net: message.net };
    case "moments":
      return { ...page, moments: withMoments(page.moments, message.came, message.gone) };
    case "state_came":
      return { ...page, state: message.state };
    case "outcome_came":
      return { ...page, outcome: message };
    case "viewers_came":
      return { ...page, controller: message.controller, viewers: message.viewers };
    case "parameters_came":
      return { ...page, parameters: message.parameters };
    case "table_came":
      return { ...page, tables: withTable(page.tables, emptyTable(message.table)) };
    case "rows":
      return withNewRows(page, message.table, message.first, message.columns);
    case "samples_came":
      return { ...page, samples: [...page.samples.slice(0, message.first), ...message.samples] };
    case "alerts_came":
      return withAlerts(page, message.alerts);
    case "recordings_came":
      return { ...page, recordings: message.recordings };
    case "runs_came":
      return { ...page, runs: message.runs, run: message.run, runList: runListOf(message) };
    case "report_came":
      return { ...page, report: message };
    case "backward_came":
      return { ...page, backward: message };
    case "comparison_came":
      return { ...page, comparison: message };
    case "ranks_came":
      return { ...page, ranks: message };
    case "ended":
      return { ...page, ended: message, state: message.state };
    case "shown":
    case "answer":
    case "problem":
      return page;
    default:
      return unknownMessage(message, page);
  }
}

// Every message has a case above, or tsc refuses this call; a later server's is left out.
function unknownMessage(_message: never, page: PageState): PageState {
  return page;
}

function runListOf({ total, waiting, revision }: RunsCame): PageState["runList"] {
  return { total, waiting, revision };
}

function withMoments(moments: Moment[], came: Moment[], gone: number[]): Moment[] {
  const removed = new Set(gone);
  return [...(removed.size ? moments.filter(({ id }) => !removed.has(id)) : moments), ...came];
}

function withAlerts(page: PageState, alerts: AlertSeen[]): PageState {
  return {
    ...page,
    alerts: [...page.alerts, ...alerts].slice(-MAX_ALERTS),
    alertCount: page.alertCount + alerts.length,
  };
}

function withTable(tables: ReadonlyMap<string, Table>, table: Table): ReadonlyMap<string, Table> {
  return new Map(tables).set(table.head.name, table);
}

function withNewRows(page: PageState, name: string, first: number, columns: Record<string, Json[]>): PageState {
  const table = page.tables.get(name);
  if (!table) return page;
  return {
    ...page,
    tables: withTable(page.tables, withRows(table, { first, columns: parseColumns(table.head, columns) })),
  };
}

// Number columns encode NaN and infinities as strings; text columns stay as they are.
function parseColumns(head: TableHead, columns: Record<string, Json[]>): Record<string, Json[]> {
  const entries = Object.entries(columns).map(([name, cells]): [string, Json[]] => {
    const isText = head.columns.find((column) => column.name === name)?.type === "text";
    return [name, isText ? cells : cells.map(parseNumbers)];
  });
  return Object.assign(Object.create(null) as object, Object.fromEntries(entries));
}
