"""The messages between server and page over `/ws`: each class is one JSON message, `kind` its name.

`web/src/studio/messages.ts` is generated from here (`python web/message_types.py`); a test compares them. Arrays are
sent as binary messages: b"TCHF", the length of the header (u32, little), the header as JSON (`FrameHead`), zeros up to
a multiple of 8, then the payload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torcheer.control.control_records import AUTO, EACH_TRIAL, Every, Parameter, State
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableHead

VERSION = 1


# -- to the page -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moment:
    """A recorded state of the network."""

    id: int  # increases
    step: int
    counters: dict[str, Any] = field(default_factory=dict)
    test: bool = False


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
class AlertSeen:
    """An alert: a problem that a rule or the host reported."""

    text: str
    severity: str = "warning"
    step: int = 0
    rule: str = ""
    layer: str = ""
    id: str = ""  # of the run's log, or of the host; "" for those of 0.1


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message: the complete state except tables' rows."""

    version: int
    title: str
    source: str  # "live", "recording", "run", "pass" (a recorded one), "nothing" (no run yet, no answer of the host)
    net: Net | None
    moments: tuple[Moment, ...]
    state: State
    parameters: tuple[Parameter, ...]
    tables: tuple[TableHead, ...]
    alerts: tuple[AlertSeen, ...]
    recordings: tuple[Recording, ...]
    runs: tuple[Run, ...]
    run: int  # which of them is shown; -1 without a choice
    controller: str  # "you", "other", "nobody"
    viewers: int


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
class StateCame:
    """The run's state changed: it continued, paused, …"""

    state: State
    controller: str
    viewers: int


@dataclass(frozen=True, slots=True)
class ParametersCame:
    """All parameters of the form."""

    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class TableCame:
    """A new table, or one with changed columns; its rows follow."""

    table: TableHead


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, by column: numbers (some as "NaN", "Infinity", "-Infinity"), text, nested lists for tensors."""

    table: str
    first: int  # the number of the first row; 0 restarts the table
    columns: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class AlertsCame:
    """New alerts."""

    alerts: tuple[AlertSeen, ...]


@dataclass(frozen=True, slots=True)
class RecordingsCame:
    """The list of recordings, after one was saved."""

    recordings: tuple[Recording, ...]
    saved: str = ""  # what was saved just now, and where


@dataclass(frozen=True, slots=True)
class RunsCame:
    """The runs of the folder, after a change."""

    runs: tuple[Run, ...]
    run: int  # which of them is shown; -1 without a choice


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
class Problem:
    """A failed request, as a sentence for people; `question` is -1 if there was none."""

    text: str
    question: int = -1


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of a server that shuts down: why, and what became of the run."""

    heading: str
    text: str  # may be empty
    state: State


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


# -- from the page ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """The Network tab's subscription; frames carry the number of the look that they belong to."""

    look: int  # increases
    variable: str  # "": no subscription, the tab is hidden
    item: int = 0
    moment: int = -1  # -1: live, each new state is sent
    layer: str = ""  # the clicked unit's layer, for "r.Wt" and the like
    unit: int = -1
    raster: int = 0  # number of moments along an axis; 0: no raster
    train: Every = AUTO
    test: Every = EACH_TRIAL


@dataclass(frozen=True, slots=True)
class Seen:
    """The frames of a look were drawn: the server may send the next."""

    look: int
    moment: int


@dataclass(frozen=True, slots=True)
class Act:
    """A pressed button."""

    action: str  # one of `control_records.ACTIONS`
    count: int = 0  # of "step_n"
    item: int = 0  # of "test_item"


@dataclass(frozen=True, slots=True)
class Change:
    """A changed parameter."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Control:
    """Take control of the run from any other page, or release it."""

    take: bool


@dataclass(frozen=True, slots=True)
class AskValue:
    """Ask for a unit's exact value: {"value": number or null, "text": "0.1234567", "index": [c, y, x]}."""

    question: int
    layer: str
    unit: int
    variable: str
    moment: int
    item: int = 0
    of_layer: str = ""  # the clicked unit's layer, for variables of weights
    of_unit: int = -1


@dataclass(frozen=True, slots=True)
class AskTrace:
    """A unit over all moments: {"moments": [ids], "steps": [..], "values": {variable: [numbers as in `Rows`]}}."""

    question: int
    layer: str
    unit: int
    variables: tuple[str, ...]
    item: int = 0


@dataclass(frozen=True, slots=True)
class AskAnalysis:
    """Analyse a column of tensors: {"labels": [a text per row], "total": rows, …}, see `table_queries`."""

    question: int
    table: str
    column: str
    analysis: str  # "similarity", "pca", "clusters"


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


TO_PAGE = (
    Hello, NetCame, Moments, StateCame, ParametersCame, TableCame, Rows, AlertsCame, RecordingsCame, RunsCame, Shown,
    Answer, Problem, Ended,
)  # fmt: skip
FROM_PAGE = (
    Look, Seen, Act, Change, Control, AskValue, AskTrace, AskAnalysis, SaveRecording, OpenRecording, OpenRun,
)  # fmt: skip
