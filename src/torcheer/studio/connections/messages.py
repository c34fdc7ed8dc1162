"""The messages between server and page over `/ws`, with those of `control/loop_messages.py` that reach pages too.

Each class is one JSON message, `kind` its name. `web/src/studio/messages.ts` is generated from here (`python
web/message_types.py`); a test compares them. Arrays are sent as binary messages: b"TCHF", the length of the header
(u32, little), the header as JSON (`FrameHead`), zeros up to a multiple of 8, then the payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from torcheer.control.control_records import AUTO, EACH_TRIAL, Act, Change, Every, State
from torcheer.control.loop_messages import AlertsCame, Moment, ParametersCame, Problem, StateCame
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableHead
from torcheer.studio.connections.comparison_messages import ComparisonCame, OpenComparison
from torcheer.studio.connections.run_messages import RUN_REQUESTS
from torcheer.wire.json_codec import AtMost, Between, OneOf, by_kind

# -- to the page -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be opened."""

    id: int
    name: str
    states: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the folder that is shown."""

    id: int
    name: str
    status: str  # "live", "ended"
    summary: str  # "12 epochs · val loss 0.31"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message, and whenever another source is shown: all that was said before is void.

    What follows is what would have come since the source began: the same messages as later on. A page that comes
    late and one that was there from the start have heard the same.
    """

    version: int
    title: str
    source: Annotated[
        str, OneOf(("live", "run", "recording", "pass", "file", "comparison", "nothing"))
    ]  # "nothing": no run yet


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All that there was has been said since `Hello`, except tables and their rows, which follow in pieces."""


@dataclass(frozen=True, slots=True)
class NetCame:
    """A new network, or changed layers."""

    net: Net


@dataclass(frozen=True, slots=True)
class Moments:
    """Added and removed moments, for the page's slider."""

    came: tuple[Moment, ...]
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableCame:
    """A new table, or one with changed columns; its rows follow."""

    table: TableHead


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, by column: numbers ("NaN", "Infinity", "-Infinity" too), text, lists for tensors."""

    table: str
    first: int  # the number of the first row; 0 restarts the table
    columns: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class ViewersCame:
    """Who controls the run, and how many pages show it."""

    controller: Annotated[str, OneOf(("you", "other", "nobody"))]
    viewers: int


@dataclass(frozen=True, slots=True)
class SampleHead:
    """Something that was logged beside numbers; its content is asked for by `AskSample`."""

    id: int
    name: str
    kind: str  # "image", "audio", "text", "table", "confusion"
    step: int
    item: int  # its place in a list that was logged; -1 for one that came alone
    caption: str
    time_secs: float  # when it was logged, since 1970


@dataclass(frozen=True, slots=True)
class SamplesCame:
    """New samples; `first` is the number of those before them, 0 restarts the list."""

    first: int
    samples: tuple[SampleHead, ...]


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One of several processes that train a model; seconds are medians of its last looks, None if unknown."""

    rank: int
    step: int  # the last one that it has logged
    step_secs: float | None
    forward_secs: float | None
    wait_secs: float | None
    is_slow: bool  # whether the others wait for it
    differs: str  # how its weights differ from those of the other ranks; "" if they do not


@dataclass(frozen=True, slots=True)
class RanksCame:
    """The ranks of a run that have a log, and how many there are."""

    ranks: tuple[RankSeen, ...]
    of: int


@dataclass(frozen=True, slots=True)
class RecordingsCame:
    """The list of recordings, after one was saved."""

    recordings: tuple[Recording, ...]
    saved: str = ""  # what was saved just now, and where


@dataclass(frozen=True, slots=True)
class RunsCame:
    """The runs of the folder, after a change."""

    runs: tuple[Run, ...]  # of more than a page can list in a menu, the one that is shown
    run: int  # which of them is shown; -1 without a choice
    total: int = 0  # runs that there are; 0: this is no folder of runs
    waiting: int = 0  # runs that are still to be read
    revision: int = 0  # grows when the list changes


@dataclass(frozen=True, slots=True)
class Shown:
    """All frames of a state were sent; the page draws them now."""

    look: int
    moment: int  # -1: nothing to show
    missing: tuple[str, ...] = ()  # layers without a value of the variable
    why: tuple[str, ...] = ()  # the reason for each of them, half a sentence


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, by the question's number."""

    question: int
    value: Any


@dataclass(frozen=True, slots=True)
class OutcomeCame:
    """How the run that is shown has ended, and where it is kept."""

    heading: str  # "" while it runs, and where none ran
    text: str  # may be empty
    kept: str  # its folder; "" if it is kept nowhere
    command: str  # that opens it again


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of a server that shuts down: why, and what became of the run."""

    heading: str
    text: str  # may be empty
    state: State


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """A number of a run over time: how it began and ended, and where its extremes were; None: not finite."""

    name: str
    first: float | None
    last: float | None
    minimum: float | None
    minimum_at: int
    maximum: float | None
    maximum_at: int


@dataclass(frozen=True, slots=True)
class ReportCame:
    """What is shown is a report, a file that answers by itself: its summary, and what it leaves out."""

    facts: tuple[tuple[str, str], ...]  # name and value
    numbers: tuple[NumberSummary, ...]
    numbers_by: str  # what their places count: "Epoch", "Step"
    modules: tuple[tuple[str, ...], ...]  # rows of cells, the head first
    config: str  # as text; "" where there is none
    left_out: tuple[str, ...]  # sentences
    graph: bool  # whether it has one


@dataclass(frozen=True, slots=True)
class BackwardCame:
    """What is shown is a pass of `torcheer.autograd`, to be walked through forward and backward: see `AskBackward`."""

    loss: str  # the name of the variable that it began with
    steps: int


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The header of a binary message: one layer of a state, or a layer over time."""

    look: int
    moment: int
    layer: str
    variable: str
    item: int
    grid: tuple[int, int, int, int]  # of the payload: the layer's, or a reduced one
    block: tuple[int, int]  # rows and columns of the layer per cell; a cell is the block's number farthest from 0
    count: int  # bytes of the payload: one per cell, 0 for no data, 1…251 from lo to hi, 253 NaN, 254 ∞, 255 −∞
    lo: float
    hi: float
    nans: int = 0  # how many values are NaN; a block with a NaN is NaN
    infs: int = 0  # how many values are infinite
    negative_infs: int = 0  # how many of these are negative
    raster: bool = False  # rows are units and columns moments, the selected one last


@dataclass(frozen=True, slots=True)
class SampleFrame:
    """The header of a binary message: answers `AskSample`, an image's pixels or sound; `AskGraph`; `AskBackward`."""

    question: int
    count: int  # bytes of the payload: uint8 by row, column and channel; int16 (little) by channel; of texts zlib's
    shape: tuple[int, ...]  # height, width and channels of an image; channels and length of sound
    rate: int = 0  # of sound, numbers per second
    note: str = ""  # what the payload does not show: clipped numbers, NaN


@dataclass(frozen=True, slots=True)
class TensorHead:
    """A tensor of a layer: a value that flows, a parameter or buffer, or a gradient of either."""

    variable: str  # "Act", "Net", "Grad" of the layer; "Wt", "WtGrad" of a parameter
    parameter: str  # its name; "": a value of the layer itself
    doc: str  # what it is, a few words
    why: str = ""  # why it is not there, half a sentence; "": it is
    type: str = ""  # "float32", "bfloat16", "int64", "bool"
    shape: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()  # a name for each axis: "batch", "channel", "row"
    first: int = -1  # the batch item at position 0 of the first axis; -1: it has no batch axis
    tiles: int = -1  # the axes to begin with; -1: none
    rows: int = -1
    columns: int = -1
    items: int = 0  # in the whole batch, of which only some may be kept; 0: unknown


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """The answer to `AskTensors`."""

    moment: int  # -1: there is none yet
    step: int
    tensors: tuple[TensorHead, ...]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """The answer to `AskStatistics`: facts about all numbers of a tensor, of those that are kept."""

    count: int
    nans: int
    plus_infs: int
    minus_infs: int
    zeros: int
    measured: tuple[tuple[str, float], ...]  # titles and numbers of `vocabulary.array_statistics.TABLE`
    edges: tuple[float, ...]  # of the histogram's bins; none without a finite number
    counts: tuple[int, ...]
    unit_axis: int  # the axis that tells units apart; -1: none does
    units: int  # along it
    dead: int  # units whose every number is exactly 0
    dead_units: tuple[int, ...]  # the first of them


@dataclass(frozen=True, slots=True)
class SliceFrame:
    """The header of a binary message that answers `AskSlice`: cells by tile, row and column."""

    question: int
    count: int  # bytes of the payload
    moment: int
    type: str  # of the tensor
    coded: Annotated[str, OneOf(("uint8", "int32", "uint32", "int64", "uint64", "float32", "float64"))]  # of the cells
    shape: tuple[int, int, int]  # of the payload: tiles, rows, columns
    firsts: tuple[int, int, int]  # the first tile, row and column of the tensor
    counts: tuple[int, int, int]  # tiles, rows and columns of the tensor that are shown
    block: tuple[int, int]  # rows and columns of the tensor per cell; a cell is the number farthest from 0, or NaN
    code: str = ""  # Python that opens the same numbers as a numpy array
    code_note: str = ""  # why there is none, and what to do


# -- from the page ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """The Network tab's subscription; frames carry the number of the look that they belong to."""

    look: Annotated[int, Between()]  # increases
    variable: str  # "": no subscription, the tab is hidden
    item: Annotated[int, Between()] = 0
    moment: int = -1  # -1: live, each new state is sent
    layer: str = ""  # the clicked unit's layer, for "r.Wt" and the like
    unit: int = -1
    raster: Annotated[int, Between(0, 10_000)] = 0  # number of moments along an axis; 0: no raster
    layers: tuple[str, ...] = ()  # those that are open; empty: all
    inspected: str = ""  # a layer whose parameters are asked for, too; "": none
    also: str = ""  # a further variable of units that is asked for
    most_cells: Annotated[int, Between(64, 1 << 20)] = 1 << 20  # of a layer's frame; larger layers come in blocks
    train: Every = AUTO
    test: Every = EACH_TRIAL


@dataclass(frozen=True, slots=True)
class Seen:
    """The frames of a look were drawn: the server may send the next."""

    look: Annotated[int, Between()]
    moment: int


@dataclass(frozen=True, slots=True)
class Control:
    """Take control of the run from any other page, or release it."""

    take: bool


@dataclass(frozen=True, slots=True)
class AskValue:
    """Ask for a unit's exact value: {"value": number or null, "text": "0.1234567", "index": [c, y, x]}."""

    question: Annotated[int, Between()]
    layer: str
    unit: int
    variable: str
    moment: int
    item: Annotated[int, Between()] = 0
    of_layer: str = ""  # the clicked unit's layer, for variables of weights
    of_unit: int = -1


@dataclass(frozen=True, slots=True)
class AskTrace:
    """A unit over all moments: {"moments": [ids], "steps": [..], "values": {variable: [numbers as in `Rows`]}}."""

    question: Annotated[int, Between()]
    layer: str
    unit: int
    variables: Annotated[tuple[str, ...], AtMost(32)]
    item: Annotated[int, Between()] = 0


@dataclass(frozen=True, slots=True)
class AskTensors:
    """The tensors of a layer at a moment, those that are not kept included: `LayerTensors`."""

    question: Annotated[int, Between()]
    layer: str
    moment: int = -1  # -1: the newest


@dataclass(frozen=True, slots=True)
class AskSlice:
    """A part of a tensor, cut by the server: a `SliceFrame`."""

    question: Annotated[int, Between()]
    layer: str
    variable: str
    parameter: str = ""  # "": a value of the layer itself
    moment: int = -1
    tiles: Annotated[int, Between(-1, 63)] = -1  # the axis whose positions are tiles side by side; -1: none
    rows: Annotated[int, Between(-1, 63)] = -1
    columns: Annotated[int, Between(-1, 63)] = -1
    index: tuple[int, ...] = ()  # the position on each axis; those of the three do not count
    firsts: tuple[int, int, int] = (0, 0, 0)  # where the tiles, rows and columns begin
    counts: tuple[int, int, int] = (-1, -1, -1)  # how many there are; -1: all that follow
    most_cells: Annotated[int, Between(64, 1 << 17)] = 1 << 16


@dataclass(frozen=True, slots=True)
class AskStatistics:
    """Statistics of all numbers of a tensor: `TensorStatistics`."""

    question: Annotated[int, Between()]
    layer: str
    variable: str
    parameter: str = ""
    moment: int = -1


@dataclass(frozen=True, slots=True)
class AskAnalysis:
    """Analyse a column of tensors: {"labels": [a text per row], "total": rows, …}, see `table_queries`."""

    question: Annotated[int, Between()]
    table: str
    column: str
    analysis: Annotated[str, OneOf(("similarity", "pca", "clusters"))]


@dataclass(frozen=True, slots=True)
class AskSample:
    """A sample's content: a `SampleFrame`, or for the other kinds {"text": …}, {"columns": …}, {"matrix": …}."""

    question: Annotated[int, Between()]
    id: Annotated[int, Between()]


@dataclass(frozen=True, slots=True)
class AskGraph:
    """The drawing of the network: a `SampleFrame` with a compressed text, see web/src/graph/payload.ts."""

    question: Annotated[int, Between()]
    part: Annotated[str, OneOf(("drawing", "details"))] = "drawing"  # details: of each operation, for panel and search


@dataclass(frozen=True, slots=True)
class AskBackward:
    """The steps of a backward pass: a `SampleFrame` with a compressed text, see web/src/studio/backward."""

    question: Annotated[int, Between()]


@dataclass(frozen=True, slots=True)
class SaveRecording:
    """Save the moments to a recording; the server picks the folder, names have letters, digits, - and _."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class OpenRecording:
    """Show a recording of the list; -1 returns to the first source. A `Hello` follows."""

    id: int


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Show another run of the folder. A `Hello` follows."""

    id: int


@dataclass(frozen=True, slots=True)
class CloseStudio:
    """End the server; a run that is live goes on."""


TO_PAGE = by_kind(
    Hello, NetCame, Moments, StateCame, OutcomeCame, ViewersCame, ParametersCame, TableCame, Rows, AlertsCame,
    SamplesCame, RanksCame, RecordingsCame, RunsCame, ReportCame, BackwardCame, ComparisonCame, CaughtUp, Shown, Answer,
    Problem, Ended,
)  # fmt: skip
FROM_PAGE = by_kind(
    Look, Seen, Act, Change, Control, AskValue, AskTrace, AskAnalysis, AskSample, AskGraph, AskBackward, AskTensors,
    AskSlice, AskStatistics, SaveRecording, OpenRecording, OpenRun, OpenComparison, CloseStudio, *RUN_REQUESTS,
)  # fmt: skip
