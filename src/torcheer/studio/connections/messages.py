"""What the server and the page tell each other over `/ws`: each class is one JSON message, `kind` its name.

`web/src/studio/messages.ts` is generated from here (`python web/message_types.py`); a test compares them. Arrays
come as binary messages: b"TCHF", the length of the header (u32, little), the header as JSON (`FrameHead`), zeros up to
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
    """Something that looks wrong."""

    text: str
    severity: str = "warning"
    step: int = 0
    rule: str = ""
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message; everything there is to know."""

    version: int
    title: str
    source: str  # "live", "recording", "run", "pass" (a recorded one), "nothing" (a host that has not spoken, no runs)
    net: Net | None
    moments: tuple[Moment, ...]
    state: State
    parameters: tuple[Parameter, ...]
    tables: tuple[TableHead, ...]
    alerts: tuple[AlertSeen, ...]
    recordings: tuple[Recording, ...]
    runs: tuple[Run, ...]
    run: int  # which of them is shown; -1 where there is no choice
    controller: str  # "you", "other", "nobody"
    viewers: int


@dataclass(frozen=True, slots=True)
class NetCame:
    """Another network, or the same with other layers."""

    net: Net


@dataclass(frozen=True, slots=True)
class Moments:
    """States that came and went; the page's slider."""

    came: tuple[Moment, ...]
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateCame:
    """The run went on, paused, …"""

    state: State
    controller: str
    viewers: int


@dataclass(frozen=True, slots=True)
class ParametersCame:
    """The form, whole."""

    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class TableCame:
    """A new table, or one with other columns; its rows follow."""

    table: TableHead


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table, by column: numbers (some as "NaN", "Infinity", "-Infinity"), text, nested lists for tensors."""

    table: str
    first: int  # the number of the first of them; 0 starts the table anew
    columns: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class AlertsCame:
    """New alerts."""

    alerts: tuple[AlertSeen, ...]


@dataclass(frozen=True, slots=True)
class RecordingsCame:
    """The list, after one was saved."""

    recordings: tuple[Recording, ...]
    saved: str = ""  # what was just saved, and where


@dataclass(frozen=True, slots=True)
class RunsCame:
    """The runs of the folder, when they have changed."""

    runs: tuple[Run, ...]
    run: int  # which of them is shown; -1 where there is no choice


@dataclass(frozen=True, slots=True)
class Shown:
    """All frames of a state have been sent; the page draws them now."""

    look: int
    moment: int  # -1 where there is nothing to show
    missing: tuple[str, ...] = ()  # layers without a value of the variable
    why: tuple[str, ...] = ()  # the reason of each of them, half a sentence


@dataclass(frozen=True, slots=True)
class Answer:
    """To a question: its number, and what was asked for."""

    question: int
    value: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was asked for and cannot be, in a sentence for people; `question` is -1 where there was none."""

    text: str
    question: int = -1


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message, from a server that ends: why there is nothing more to come, and what became of the run."""

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
    grid: tuple[int, int, int, int]  # of what is sent: that of the layer, or smaller
    block: tuple[int, int]  # each cell sent stands for so many rows and columns of the layer; the extreme one of them
    count: int  # bytes of the payload: one per cell, 0 for no data, 1…251 from lo to hi, 253 NaN, 254 ∞, 255 −∞
    lo: float
    hi: float
    nans: int = 0  # how many were NaN; a cell that stands for several is NaN where one of them is
    infs: int = 0  # how many were infinite
    negative_infs: int = 0  # how many of those
    raster: bool = False  # then rows are units and columns moments, the last one the one looked at


# -- from the page ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """What the Network tab looks at from now on; every later frame says which look it belongs to."""

    look: int  # increases
    variable: str  # "" for nothing: the tab is hidden
    item: int = 0
    moment: int = -1  # -1 live: each new state is sent
    layer: str = ""  # the clicked unit, for "r.Wt" and its like
    unit: int = -1
    raster: int = 0  # so many moments as an axis; 0 for none
    train: Every = AUTO
    test: Every = EACH_TRIAL


@dataclass(frozen=True, slots=True)
class Seen:
    """The frames of a look have been drawn: the next may come."""

    look: int
    moment: int


@dataclass(frozen=True, slots=True)
class Act:
    """A button."""

    action: str  # one of `host.records.ACTIONS`
    count: int = 0  # of "step_n"
    item: int = 0  # of "test_item"


@dataclass(frozen=True, slots=True)
class Change:
    """A parameter."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Control:
    """Take control of the run from whoever has it, or give it up."""

    take: bool


@dataclass(frozen=True, slots=True)
class AskValue:
    """The exact value of a unit; the answer is {"value": number or null, "text": "0.1234567", "index": [c, y, x]}."""

    question: int
    layer: str
    unit: int
    variable: str
    moment: int
    item: int = 0
    of_layer: str = ""  # the clicked unit, where the variable is one of weights
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
    """What a column of tensors says: {"labels": [a text per row], "total": rows there are, …} as `analyses` has it."""

    question: int
    table: str
    column: str
    analysis: str  # "similarity", "pca", "clusters"


@dataclass(frozen=True, slots=True)
class SaveRecording:
    """Keep the moments there are; the server finds the folder, the name is made of letters, digits, - and _."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class OpenRecording:
    """Show a recording of the list; -1 goes back to what was shown first. A `Hello` follows."""

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
