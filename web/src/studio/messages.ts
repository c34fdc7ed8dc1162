// Written by `python web/message_types.py` from src/torcheer/studio/connections/messages.py: change it there.

/** What JSON can say. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export const VERSION = 1;

export const ACTIONS = ["init", "train", "stop", "step_trial", "step_epoch", "step_run", "step_n", "test_trial", "test_item", "test_all", "new_seed"] as const;

/** One layer of a network; its units are the numbers of one batch item, in C order. */
export interface Layer {
  name: string; // "features.0", "Hidden1": unique
  shape: number[]; // of one batch item: (units,), (rows, columns), (channels, rows, columns), (tokens, width)
  kind: string; // the module's type: "Conv2d", "Linear", "MultiheadAttention", "Input"
  view: string;
  place: [number, number, number] | null; // its centre, in scene units; None: computed by `placement`
  relation: string;
  other: string;
  also: string[]; // its further parts: activations after it, parameters
}

/** A layer with its grid, size and place. Unit u lies in tile u // (rows*columns), in row-major order. */
export interface PlacedLayer {
  layer: Layer;
  units: number;
  grid: [number, number, number, number]; // tile rows, tile columns, rows, columns of a tile; the last cells may be empty
  size: [number, number]; // width (x) and depth (z) of its plane, in the scene's units
  place: [number, number, number]; // of its centre; y is up
}

/** Weights between two layers. */
export interface Projection {
  name: string; // "features.3.weight", "Hidden1ToOutput": unique
  sender: string; // a layer
  receiver: string;
  kind: string; // "linear" (receiver, sender), "conv" (out, in, rows, columns), "" where weights are unknown
  shape: number[]; // of the weights
  stride: number[]; // of a convolution, like the following fields
  padding: number[];
  dilation: number[];
  groups: number;
  type: string; // or "recurrent", "skip", "lateral", "back": selects the arrow's style
}

/** A variable that units, or weights, have a value of. */
export interface Variable {
  name: string; // "Act", "Grad", "Net"; of weights "Wt", "DWt"
  of: string; // or "weight"
  doc: string;
  range: [number, number] | null; // fixed; None: automatic
  zero_centred: boolean;
}

/** The placed network; sent first and whenever it changes. */
export interface Net {
  name: string;
  layers: PlacedLayer[];
  projections: Projection[];
  variables: Variable[];
}

/** A recorded state of the network. */
export interface Moment {
  id: number; // increases
  step: number;
  counters: Record<string, Json>;
  test: boolean;
}

/** A run's status and counters, and the actions it accepts. */
export interface State {
  status: string; // "running", "paused", "testing", "done", "lost" (killed), "idle" (nothing to control)
  counters: Record<string, Json>; // {"Run": 1, "Epoch": 3, "Trial": 12, "Name": "pattern 7"}
  can: string[]; // the `ACTIONS` that this host understands
  items: number; // how many items there are to test; 0 where unknown
  batch: number; // batch size
  step_n: number; // default count of "step_n"
  message: string; // its current activity, or why it stopped
}

/** A parameter, shown as a line of the form. */
export interface Parameter {
  name: string; // "optimizers.adam.lr": unique
  value: Json; // text, a number, true or false, or a list of these
  kind: string; // or "integer", "text", "flag", "choice"
  editable: boolean; // while the loop runs
  doc: string;
  group: string; // a heading
  choices: string[];
  minimum: number | null;
  maximum: number | null;
}

/** A column of a table. */
export interface Column {
  name: string;
  type: string; // "int", "float", "text", "tensor"
  shape: number[]; // of a tensor cell
  plotted: boolean; // by default
  fixed: [number, number] | null; // the range of its axis; None: automatic
  error: string; // the column that holds its error bars
}

/** A table without its rows: name, title, axes, columns. */
export interface TableHead {
  name: string; // "train_epoch", "test_trial", "test_epoch", "run", "train_step", "patterns"
  title: string; // "Train epochs"
  x: string; // the column along the x axis; "" counts the rows
  legend: string; // the column of which each value is plotted as a separate line
  columns: Column[];
}

/** Something that looks wrong. */
export interface AlertSeen {
  text: string;
  severity: string;
  step: number;
  rule: string;
  layer: string;
}

/** A recording that can be opened. */
export interface Recording {
  id: number;
  name: string;
  states: number;
  bytes: number;
}

/** A run of the folder that is shown. */
export interface Run {
  id: number;
  name: string;
  status: string; // "live", "ended"
  summary: string; // "12 epochs · val loss 0.31"
}

/** The first message; everything there is to know. */
export interface Hello {
  kind: "hello";
  version: number;
  title: string;
  source: string; // "live", "recording", "run", "pass" (a recorded one), "nothing" (a host that has not spoken, no runs)
  net: Net | null;
  moments: Moment[];
  state: State;
  parameters: Parameter[];
  tables: TableHead[];
  alerts: AlertSeen[];
  recordings: Recording[];
  runs: Run[];
  run: number; // which of them is shown; -1 where there is no choice
  controller: string; // "you", "other", "nobody"
  viewers: number;
}

/** Another network, or the same with other layers. */
export interface NetCame {
  kind: "net_came";
  net: Net;
}

/** States that came and went; the page's slider. */
export interface Moments {
  kind: "moments";
  came: Moment[];
  gone: number[];
}

/** The run went on, paused, … */
export interface StateCame {
  kind: "state_came";
  state: State;
  controller: string;
  viewers: number;
}

/** The form, whole. */
export interface ParametersCame {
  kind: "parameters_came";
  parameters: Parameter[];
}

/** A new table, or one with other columns; its rows follow. */
export interface TableCame {
  kind: "table_came";
  table: TableHead;
}

/** Rows of a table, by column: numbers (some as "NaN", "Infinity", "-Infinity"), text, nested lists for tensors. */
export interface Rows {
  kind: "rows";
  table: string;
  first: number; // the number of the first of them; 0 starts the table anew
  columns: Record<string, Json[]>;
}

/** New alerts. */
export interface AlertsCame {
  kind: "alerts_came";
  alerts: AlertSeen[];
}

/** The list, after one was saved. */
export interface RecordingsCame {
  kind: "recordings_came";
  recordings: Recording[];
  saved: string; // what was just saved, and where
}

/** The runs of the folder, when they have changed. */
export interface RunsCame {
  kind: "runs_came";
  runs: Run[];
  run: number; // which of them is shown; -1 where there is no choice
}

/** All frames of a state have been sent; the page draws them now. */
export interface Shown {
  kind: "shown";
  look: number;
  moment: number; // -1 where there is nothing to show
  missing: string[]; // layers without a value of the variable
  why: string[]; // the reason of each of them, half a sentence
}

/** To a question: its number, and what was asked for. */
export interface Answer {
  kind: "answer";
  question: number;
  value: Json;
}

/** Something that was asked for and cannot be, in a sentence for people; `question` is -1 where there was none. */
export interface Problem {
  kind: "problem";
  text: string;
  question: number;
}

/** The last message, from a server that ends: why there is nothing more to come, and what became of the run. */
export interface Ended {
  kind: "ended";
  heading: string;
  text: string; // may be empty
  state: State;
}

/** The header of a binary message: one layer of a state, or a layer over time. */
export interface FrameHead {
  look: number;
  moment: number;
  layer: string;
  variable: string;
  item: number;
  grid: [number, number, number, number]; // of what is sent: that of the layer, or smaller
  block: [number, number]; // each cell sent stands for so many rows and columns of the layer; the extreme one of them
  count: number; // bytes of the payload: one per cell, 0 for no data, 1…251 from lo to hi, 253 NaN, 254 ∞, 255 −∞
  lo: number;
  hi: number;
  nans: number; // how many were NaN; a cell that stands for several is NaN where one of them is
  infs: number; // how many were infinite
  negative_infs: number; // how many of those
  raster: boolean; // then rows are units and columns moments, the last one the one looked at
}

/** How often states are recorded: every `count` trials or epochs; "auto": within 1% of the run time. */
export interface Every {
  unit?: string; // "auto", "trial", "epoch", "off"
  count?: number;
}

/** What the Network tab looks at from now on; every later frame says which look it belongs to. */
export interface Look {
  kind: "look";
  look: number; // increases
  variable: string; // "" for nothing: the tab is hidden
  item?: number;
  moment?: number; // -1 live: each new state is sent
  layer?: string; // the clicked unit, for "r.Wt" and its like
  unit?: number;
  raster?: number; // so many moments as an axis; 0 for none
  train?: Every;
  test?: Every;
}

/** The frames of a look have been drawn: the next may come. */
export interface Seen {
  kind: "seen";
  look: number;
  moment: number;
}

/** A button. */
export interface Act {
  kind: "act";
  action: string; // one of `host.records.ACTIONS`
  count?: number; // of "step_n"
  item?: number; // of "test_item"
}

/** A parameter. */
export interface Change {
  kind: "change";
  name: string;
  value: Json;
}

/** Take control of the run from whoever has it, or give it up. */
export interface Control {
  kind: "control";
  take: boolean;
}

/** The exact value of a unit; the answer is {"value": number or null, "text": "0.1234567", "index": [c, y, x]}. */
export interface AskValue {
  kind: "ask_value";
  question: number;
  layer: string;
  unit: number;
  variable: string;
  moment: number;
  item?: number;
  of_layer?: string; // the clicked unit, where the variable is one of weights
  of_unit?: number;
}

/** A unit over all moments: {"moments": [ids], "steps": [..], "values": {variable: [numbers as in `Rows`]}}. */
export interface AskTrace {
  kind: "ask_trace";
  question: number;
  layer: string;
  unit: number;
  variables: string[];
  item?: number;
}

/** What a column of tensors says: {"labels": [a text per row], "total": rows there are, …} as `analyses` has it. */
export interface AskAnalysis {
  kind: "ask_analysis";
  question: number;
  table: string;
  column: string;
  analysis: string; // "similarity", "pca", "clusters"
}

/** Keep the moments there are; the server finds the folder, the name is made of letters, digits, - and _. */
export interface SaveRecording {
  kind: "save_recording";
  name?: string;
}

/** Show a recording of the list; -1 goes back to what was shown first. A `Hello` follows. */
export interface OpenRecording {
  kind: "open_recording";
  id: number;
}

/** Show another run of the folder. A `Hello` follows. */
export interface OpenRun {
  kind: "open_run";
  id: number;
}

/** All that the server says; `kind` tells which. */
export type ToPage =
  | Hello
  | NetCame
  | Moments
  | StateCame
  | ParametersCame
  | TableCame
  | Rows
  | AlertsCame
  | RecordingsCame
  | RunsCame
  | Shown
  | Answer
  | Problem
  | Ended;

/** All that a page says; `kind` tells which. */
export type FromPage =
  | Look
  | Seen
  | Act
  | Change
  | Control
  | AskValue
  | AskTrace
  | AskAnalysis
  | SaveRecording
  | OpenRecording
  | OpenRun;
