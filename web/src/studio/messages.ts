// Written by `python web/message_types.py` from src/torcheer/studio/connections/messages.py and
// src/torcheer/control/loop_messages.py: change it there.

/** What JSON can say. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export const VERSION = 2;

export const ACTIONS = ["init", "train", "stop", "step_trial", "step_epoch", "step_run", "step_n", "test_trial", "test_item", "test_all", "new_seed"] as const;

/** The first message, and whenever another source is shown: all that was said before is void.
 *
 * What follows is what would have come since the source began: the same messages as later on. A page that comes
 * late and one that was there from the start have heard the same. */
export interface Hello {
  kind: "hello";
  version: number;
  title: string;
  source: "live" | "run" | "recording" | "pass" | "file" | "comparison" | "nothing";
}

/** One layer of a network; its units are the numbers of one batch item, in C order. */
export interface Layer {
  name: string; // "features.0", "Hidden1": unique
  shape: number[]; // of one batch item: (units,), (rows, columns), (channels, rows, columns), (tokens, width)
  kind: string; // the module's type: "Conv2d", "Linear", "MultiheadAttention", "Input"
  view: string;
  place: [number, number, number] | null; // its centre, in scene units; None: computed by `placement`
  relation: string;
  other: string;
  align: [string, string]; // with `other`: "left", "right"; "front", "back"; "": its middle
  space: number | null; // columns of `other` left free between the two; None: as much as looks well
  also: string[]; // its further parts: activations after it, parameters
  holds: boolean; // whether it is what a module returned that holds other layers
  range: [number, number] | null; // of its Act, where every value lies in it by its nature
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

/** A module that ran, in the tree of modules. */
export interface ModuleNode {
  path: string; // "layers.0.self_attn"
  kind: string; // its type
  parent: string; // the path of the module that called it; "" for the model itself
  calls: number;
  repeats: number; // ×N: how many equal siblings begin with it; 0 for the others among them
  output: string; // the layer that has what it returned; "" where none has
}

/** The placed network; sent first and whenever it changes. */
export interface Net {
  name: string;
  layers: PlacedLayer[];
  projections: Projection[];
  variables: Variable[];
  modules: ModuleNode[]; // the tree, each after its parent
  token_names: string[][]; // as in `Network`
}

/** A new network, or changed layers. */
export interface NetCame {
  kind: "net_came";
  net: Net;
}

/** A recorded state of the network. */
export interface Moment {
  id: number; // increases
  step: number;
  counters: Record<string, Json>;
  test: boolean;
}

/** Added and removed moments, for the page's slider. */
export interface Moments {
  kind: "moments";
  came: Moment[];
  gone: number[];
}

/** A run's status and counters, and the actions it accepts. */
export interface State {
  status: string; // "running", "paused", "testing", "done", "failed", "lost": killed, "idle": nothing to control
  counters: Record<string, Json>; // {"Run": 1, "Epoch": 3, "Batch": 12, "Name": "item 7"}
  can: string[]; // the `ACTIONS` that this host understands
  items: number; // how many items there are to test; 0 where unknown
  batch: number; // batch size
  step_n: number; // default count of "step_n"
  message: string; // its current activity, or why it stopped
  unit: string; // what one step of it is called; "trial" in eTorch's simulations
  watched: boolean; // whether the rules of a watch judge it
}

/** The run's state changed: it continued, paused, … */
export interface StateCame {
  kind: "state_came";
  state: State;
}

/** How the run that is shown has ended, and where it is kept. */
export interface OutcomeCame {
  kind: "outcome_came";
  heading: string; // "" while it runs, and where none ran
  text: string; // may be empty
  kept: string; // its folder; "" if it is kept nowhere
  command: string; // that opens it again
}

/** Who controls the run, and how many pages show it. */
export interface ViewersCame {
  kind: "viewers_came";
  controller: "you" | "other" | "nobody";
  viewers: number;
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

/** All parameters of the form. */
export interface ParametersCame {
  kind: "parameters_came";
  parameters: Parameter[];
}

/** A column of a table. */
export interface Column {
  name: string;
  type: string; // "int", "float", "text", "tensor"
  shape: number[]; // of a tensor cell
  plotted: boolean; // by default
  fixed: [number, number] | null; // the range of its axis; an infinite end or None: automatic
  error: string; // the column that holds its error bars
  edges: number[]; // of histograms: between the bins; the outermost bins are unbounded
}

/** A table without its rows: name, title, axes, columns. */
export interface TableHead {
  name: string; // "train_epoch", "test_trial", "test_epoch", "run", "train_step", "patterns"
  title: string; // "Train epochs"
  x: string; // the column along the x axis; "" counts the rows
  legend: string; // the column of which each value is plotted as a separate line
  columns: Column[];
  layer: string; // whose statistics these are; its variable is the rest of the name
}

/** A new table, or one with changed columns; its rows follow. */
export interface TableCame {
  kind: "table_came";
  table: TableHead;
}

/** Rows of a table, by column: numbers ("NaN", "Infinity", "-Infinity" too), text, lists for tensors. */
export interface Rows {
  kind: "rows";
  table: string;
  first: number; // the number of the first row; 0 restarts the table
  columns: Record<string, Json[]>;
}

/** An alert: a problem that a rule or the host reported. */
export interface AlertSeen {
  text: string;
  severity: string;
  step: number;
  rule: string;
  layer: string;
  id: string; // of the run's log, or of the host; "" for those of 0.1
  follows: string; // the alert that explains it, as its text begins: "dead_relu at step 20"
  began_here: boolean; // of NaN and infinities: the step before was looked at and had none
}

/** New alerts. */
export interface AlertsCame {
  kind: "alerts_came";
  alerts: AlertSeen[];
}

/** Something that was logged beside numbers; its content is asked for by `AskSample`. */
export interface SampleHead {
  id: number;
  name: string;
  kind: string; // "image", "audio", "text", "table", "confusion"
  step: number;
  item: number; // its place in a list that was logged; -1 for one that came alone
  caption: string;
  time_secs: number; // when it was logged, since 1970
}

/** New samples; `first` is the number of those before them, 0 restarts the list. */
export interface SamplesCame {
  kind: "samples_came";
  first: number;
  samples: SampleHead[];
}

/** One of several processes that train a model; seconds are medians of its last looks, None if unknown. */
export interface RankSeen {
  rank: number;
  step: number; // the last one that it has logged
  step_secs: number | null;
  forward_secs: number | null;
  wait_secs: number | null;
  is_slow: boolean; // whether the others wait for it
  differs: string; // how its weights differ from those of the other ranks; "" if they do not
}

/** The ranks of a run that have a log, and how many there are. */
export interface RanksCame {
  kind: "ranks_came";
  ranks: RankSeen[];
  of: number;
}

/** A recording that can be opened. */
export interface Recording {
  id: number;
  name: string;
  states: number;
  bytes: number;
}

/** The list of recordings, after one was saved. */
export interface RecordingsCame {
  kind: "recordings_came";
  recordings: Recording[];
  saved: string; // what was saved just now, and where
}

/** A run of the folder that is shown. */
export interface Run {
  id: number;
  name: string;
  status: string; // "live", "ended"
  summary: string; // "12 epochs · val loss 0.31"
}

/** The runs of the folder, after a change. */
export interface RunsCame {
  kind: "runs_came";
  runs: Run[]; // of more than a page can list in a menu, the one that is shown
  run: number; // which of them is shown; -1 without a choice
  total: number; // runs that there are; 0: this is no folder of runs
  waiting: number; // runs that are still to be read
  revision: number; // grows when the list changes
}

/** A number of a run over time: how it began and ended, and where its extremes were; None: not finite. */
export interface NumberSummary {
  name: string;
  first: number | null;
  last: number | null;
  minimum: number | null;
  minimum_at: number;
  maximum: number | null;
  maximum_at: number;
}

/** What is shown is a report, a file that answers by itself: its summary, and what it leaves out. */
export interface ReportCame {
  kind: "report_came";
  facts: [string, string][]; // name and value
  numbers: NumberSummary[];
  numbers_by: string; // what their places count: "Epoch", "Step"
  modules: string[][]; // rows of cells, the head first
  config: string; // as text; "" where there is none
  left_out: string[]; // sentences
  graph: boolean; // whether it has one
}

/** What is shown is a pass of `torcheer.autograd`, to be walked through forward and backward: see `AskBackward`. */
export interface BackwardCame {
  kind: "backward_came";
  loss: string; // the name of the variable that it began with
  steps: number;
}

/** What is shown are two side by side; their rows are the table "differences". */
export interface ComparisonCame {
  kind: "comparison_came";
  first: string; // their names
  second: string;
  summary: string[]; // sentences: how many differ, where they part
  first_difference: string; // the layer that differs first; "" if none does so far
  compared: number; // rows so far
  total: number; // rows that there will be; 0 while that is not known
  done: boolean;
}

/** All that there was has been said since `Hello`, except tables and their rows, which follow in pieces. */
export interface CaughtUp {
  kind: "caught_up";
}

/** All frames of a state were sent; the page draws them now. */
export interface Shown {
  kind: "shown";
  look: number;
  moment: number; // -1: nothing to show
  missing: string[]; // layers without a value of the variable
  why: string[]; // the reason for each of them, half a sentence
}

/** The answer to a question, by the question's number. */
export interface Answer {
  kind: "answer";
  question: number;
  value: Json;
}

/** A failed request, as a sentence for people; `question` is -1 if there was none. */
export interface Problem {
  kind: "problem";
  text: string;
  question: number;
}

/** The last message of a server that shuts down: why, and what became of the run. */
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
  grid: [number, number, number, number]; // of the payload: the layer's, or a reduced one
  block: [number, number]; // rows and columns of the layer per cell; a cell is the block's number farthest from 0
  count: number; // bytes of the payload: one per cell, 0 for no data, 1…251 from lo to hi, 253 NaN, 254 ∞, 255 −∞
  lo: number;
  hi: number;
  nans: number; // how many values are NaN; a block with a NaN is NaN
  infs: number; // how many values are infinite
  negative_infs: number; // how many of these are negative
  raster: boolean; // rows are units and columns moments, the selected one last
}

/** The header of a binary message: answers `AskSample`, an image's pixels or sound; `AskGraph`; `AskBackward`. */
export interface SampleFrame {
  question: number;
  count: number; // bytes of the payload: uint8 by row, column and channel; int16 (little) by channel; of texts zlib's
  shape: number[]; // height, width and channels of an image; channels and length of sound
  rate: number; // of sound, numbers per second
  note: string; // what the payload does not show: clipped numbers, NaN
}

/** The header of a binary message that answers `AskSlice`: cells by tile, row and column. */
export interface SliceFrame {
  question: number;
  count: number; // bytes of the payload
  moment: number;
  type: string; // of the tensor
  coded: "uint8" | "int32" | "uint32" | "int64" | "uint64" | "float32" | "float64"; // of the cells
  shape: [number, number, number]; // of the payload: tiles, rows, columns
  firsts: [number, number, number]; // the first tile, row and column of the tensor
  counts: [number, number, number]; // tiles, rows and columns of the tensor that are shown
  block: [number, number]; // rows and columns of the tensor per cell; a cell is the number farthest from 0, or NaN
  code: string; // Python that opens the same numbers as a numpy array
  code_note: string; // why there is none, and what to do
}

/** A tensor of a layer: a value that flows, a parameter or buffer, or a gradient of either. */
export interface TensorHead {
  variable: string; // "Act", "Net", "Grad" of the layer; "Wt", "WtGrad" of a parameter
  parameter: string; // its name; "": a value of the layer itself
  doc: string; // what it is, a few words
  why: string; // why it is not there, half a sentence; "": it is
  type: string; // "float32", "bfloat16", "int64", "bool"
  shape: number[];
  axes: string[]; // a name for each axis: "batch", "channel", "row"
  first: number; // the batch item at position 0 of the first axis; -1: it has no batch axis
  tiles: number; // the axes to begin with; -1: none
  rows: number;
  columns: number;
  items: number; // in the whole batch, of which only some may be kept; 0: unknown
}

/** The answer to `AskTensors`. */
export interface LayerTensors {
  moment: number; // -1: there is none yet
  step: number;
  tensors: TensorHead[];
}

/** The answer to `AskStatistics`: facts about all numbers of a tensor, of those that are kept. */
export interface TensorStatistics {
  count: number;
  nans: number;
  plus_infs: number;
  minus_infs: number;
  zeros: number;
  measured: [string, number][]; // titles and numbers of `vocabulary.array_statistics.TABLE`
  edges: number[]; // of the histogram's bins; none without a finite number
  counts: number[];
  unit_axis: number; // the axis that tells units apart; -1: none does
  units: number; // along it
  dead: number; // units whose every number is exactly 0
  dead_units: number[]; // the first of them
}

/** How often states are recorded: every `count` trials or epochs; "auto": within 1% of the run time. */
export interface Every {
  unit?: "auto" | "trial" | "epoch" | "off";
  count?: number;
}

/** The Network tab's subscription; frames carry the number of the look that they belong to. */
export interface Look {
  kind: "look";
  look: number; // increases
  variable: string; // "": no subscription, the tab is hidden
  item?: number;
  moment?: number; // -1: live, each new state is sent
  layer?: string; // the clicked unit's layer, for "r.Wt" and the like
  unit?: number;
  raster?: number; // number of moments along an axis; 0: no raster
  layers?: string[]; // those that are open; empty: all
  inspected?: string; // a layer whose parameters are asked for, too; "": none
  also?: string; // a further variable of units that is asked for
  most_cells?: number; // of a layer's frame; larger layers come in blocks
  train?: Every;
  test?: Every;
}

/** The frames of a look were drawn: the server may send the next. */
export interface Seen {
  kind: "seen";
  look: number;
  moment: number;
}

/** A pressed button. */
export interface Act {
  kind: "act";
  action: "init" | "train" | "stop" | "step_trial" | "step_epoch" | "step_run" | "step_n" | "test_trial" | "test_item" | "test_all" | "new_seed";
  count?: number; // of "step_n"
  item?: number; // of "test_item"
}

/** A changed parameter. */
export interface Change {
  kind: "change";
  name: string;
  value: Json;
}

/** Take control of the run from any other page, or release it. */
export interface Control {
  kind: "control";
  take: boolean;
}

/** Ask for a unit's exact value: {"value": number or null, "text": "0.1234567", "index": [c, y, x]}. */
export interface AskValue {
  kind: "ask_value";
  question: number;
  layer: string;
  unit: number;
  variable: string;
  moment: number;
  item?: number;
  of_layer?: string; // the clicked unit's layer, for variables of weights
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

/** Analyse a column of tensors: {"labels": [a text per row], "total": rows, …}, see `table_queries`. */
export interface AskAnalysis {
  kind: "ask_analysis";
  question: number;
  table: string;
  column: string;
  analysis: "similarity" | "pca" | "clusters";
}

/** A sample's content: a `SampleFrame`, or for the other kinds {"text": …}, {"columns": …}, {"matrix": …}. */
export interface AskSample {
  kind: "ask_sample";
  question: number;
  id: number;
}

/** The drawing of the network: a `SampleFrame` with a compressed text, see web/src/graph/payload.ts. */
export interface AskGraph {
  kind: "ask_graph";
  question: number;
  part?: "drawing" | "details"; // details: of each operation, for panel and search
}

/** The steps of a backward pass: a `SampleFrame` with a compressed text, see web/src/studio/backward. */
export interface AskBackward {
  kind: "ask_backward";
  question: number;
}

/** The tensors of a layer at a moment, those that are not kept included: `LayerTensors`. */
export interface AskTensors {
  kind: "ask_tensors";
  question: number;
  layer: string;
  moment?: number; // -1: the newest
}

/** A part of a tensor, cut by the server: a `SliceFrame`. */
export interface AskSlice {
  kind: "ask_slice";
  question: number;
  layer: string;
  variable: string;
  parameter?: string; // "": a value of the layer itself
  moment?: number;
  tiles?: number; // the axis whose positions are tiles side by side; -1: none
  rows?: number;
  columns?: number;
  index?: number[]; // the position on each axis; those of the three do not count
  firsts?: [number, number, number]; // where the tiles, rows and columns begin
  counts?: [number, number, number]; // how many there are; -1: all that follow
  most_cells?: number;
}

/** Statistics of all numbers of a tensor: `TensorStatistics`. */
export interface AskStatistics {
  kind: "ask_statistics";
  question: number;
  layer: string;
  variable: string;
  parameter?: string;
  moment?: number;
}

/** Save the moments to a recording; the server picks the folder, names have letters, digits, - and _. */
export interface SaveRecording {
  kind: "save_recording";
  name?: string;
}

/** Show a recording of the list; -1 returns to the first source. A `Hello` follows. */
export interface OpenRecording {
  kind: "open_recording";
  id: number;
}

/** Show another run of the folder. A `Hello` follows. */
export interface OpenRun {
  kind: "open_run";
  id: number;
}

/** Show the checkpoints of two runs of the folder, or of one, side by side. A `Hello` follows. */
export interface OpenComparison {
  kind: "open_comparison";
  first: number; // runs
  second: number;
  first_step?: number; // of the checkpoint; -1: the newest, or what a recorded pass has
  second_step?: number;
}

/** End the server; a run that is live goes on. */
export interface CloseStudio {
  kind: "close_studio";
}

/** Which columns the list may have: [{"name", "group", "type", "count", "varies"}]. */
export interface AskRunColumns {
  kind: "ask_run_columns";
  question: number;
}

/** Cells of the list: {"ids": the runs' numbers, "columns": {name: cells}, "revision": of the list}. */
export interface AskRuns {
  kind: "ask_runs";
  question: number;
  columns: string[];
}

/** All that is known of some runs: [{"id", "folder", "config", "results", "name", "tags", "note", …}]. */
export interface AskRunDetails {
  kind: "ask_run_details";
  question: number;
  runs: number[];
}

/** Series of runs: {"curves": [{"run", "series", "x_name", "x", "y", "points"}], "problems": [texts]}. */
export interface AskCurves {
  kind: "ask_curves";
  question: number;
  runs: number[];
  series: string[];
}

/** What can be compared of runs: [{"run", "name", "pass": is it a recorded pass, "checkpoints": […]}].
 *
 * A checkpoint is {"step", "best", "nan", "row": the numbers of its epoch}. */
export interface AskCheckpoints {
  kind: "ask_checkpoints";
  question: number;
  runs: number[];
}

/** Say what a run is called, its tags and a note: {"kept": where that lies now}. */
export interface NoteRun {
  kind: "note_run";
  question: number;
  run: number;
  name: string;
  tags: string[];
  note: string;
}

/** Add tags to runs and take others away: {"count": how many have those now, "problems": [texts]}. */
export interface TagRuns {
  kind: "tag_runs";
  question: number;
  runs: number[];
  add?: string[];
  remove?: string[];
}

/** Move runs to the folder's trash: {"moved": [names], "places": [paths in it], "trash", "problems": [texts]}. */
export interface DeleteRuns {
  kind: "delete_runs";
  question: number;
  runs: number[];
}

/** Move runs back from the trash, by their paths in it: {"restored": [names], "problems": [texts]}. */
export interface RestoreRuns {
  kind: "restore_runs";
  question: number;
  places: string[];
}

/** A unit's number. */
export interface UnitValue {
  value: number | null; // None: missing, or not finite
  text: string; // in full precision
  index: number[]; // of the unit in its layer
}

/** A unit over time. */
export interface UnitTrace {
  moments: number[];
  steps: number[];
  values: Record<string, Json[]>; // by variable; a number, its name where it is not finite, or None
}

/** How the newest rows of a column of tensors compare; which fields there are depends on the analysis. */
export interface ColumnAnalysis {
  labels: string[];
  total: number; // rows of the table
  matrix?: ((number | null)[])[] | null; // similarity
  points?: [number, number][] | null; // pca
  explained?: number[] | null;
  order?: number[] | null; // clusters
  merges?: [number, number, number][] | null;
}

/** A column that the list of runs may have. */
export interface RunColumn {
  name: string;
  group: "run" | "config" | "result";
  type: "text" | "float" | "time";
  count: number; // of the runs that have it
  varies: boolean;
}

/** Cells of the list of runs. */
export interface RunCells {
  ids: number[]; // of the runs
  columns: Record<string, Json>; // cells by the column's name
  revision: number; // of the list
}

/** All of a run but its series. */
export interface RunDetails {
  id: number;
  folder: string;
  kind: string;
  status: string;
  summary: string;
  made_by: string;
  began: number;
  changed: number;
  problem: string;
  name: string;
  tags: string[];
  note: string;
  config: Record<string, Json>;
  results: Record<string, Json>;
}

/** A series of a run. */
export interface RunCurve {
  run: number;
  series: string;
  x_name: string;
  x: number[];
  y: Json[];
  points: number; // before it was thinned
}

/** Series of runs, and why others are not there. */
export interface CurvesAnswer {
  curves: RunCurve[];
  problems: string[];
}

/** Where a run's name, tags and note lie now. */
export interface RunNoted {
  kept: string;
}

/** Which runs were moved to the trash. */
export interface RunsDeleted {
  moved: string[]; // names
  places: string[]; // paths in the trash, by which they can be moved back
  trash: string; // where they lie
  problems: string[];
}

/** How many runs have the tags that were asked for. */
export interface RunsTagged {
  count: number;
  problems: string[];
}

/** Which runs were moved back from the trash. */
export interface RunsRestored {
  restored: string[]; // names
  problems: string[];
}

/** The answers, by the question's kind. */
export interface Answers {
  ask_value: UnitValue;
  ask_trace: UnitTrace;
  ask_analysis: ColumnAnalysis;
  ask_tensors: LayerTensors;
  ask_statistics: TensorStatistics;
  ask_run_columns: RunColumn[];
  ask_runs: RunCells;
  ask_run_details: RunDetails[];
  ask_curves: CurvesAnswer;
  note_run: RunNoted;
  delete_runs: RunsDeleted;
  tag_runs: RunsTagged;
  restore_runs: RunsRestored;
}

/** All that the server says; `kind` tells which. */
export type ToPage =
  | Hello
  | NetCame
  | Moments
  | StateCame
  | OutcomeCame
  | ViewersCame
  | ParametersCame
  | TableCame
  | Rows
  | AlertsCame
  | SamplesCame
  | RanksCame
  | RecordingsCame
  | RunsCame
  | ReportCame
  | BackwardCame
  | ComparisonCame
  | CaughtUp
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
  | AskSample
  | AskGraph
  | AskBackward
  | AskTensors
  | AskSlice
  | AskStatistics
  | SaveRecording
  | OpenRecording
  | OpenRun
  | OpenComparison
  | CloseStudio
  | AskRunColumns
  | AskRuns
  | AskRunDetails
  | AskCurves
  | AskCheckpoints
  | NoteRun
  | TagRuns
  | DeleteRuns
  | RestoreRuns;
