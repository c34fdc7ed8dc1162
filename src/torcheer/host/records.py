"""What a host and a viewer tell each other, as plain frozen data; JSON on the socket, arrays through the ring.

`docs/decisions/0009-the-studio.md` says who sends what and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GAP_BITS = 0x7FC07CE5  # of a float32, a NaN that no computation makes: nothing is there
ACTIONS = (
    "init", "train", "stop", "step_trial", "step_epoch", "step_run", "step_n", "test_trial", "test_item", "test_all",
    "new_seed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a network; its units are the numbers of one batch item, in C order."""

    name: str  # "features.0", "Hidden1": unique
    shape: tuple[int, ...]  # of one batch item: (units,), (rows, columns), (channels, rows, columns), (tokens, width)
    kind: str = ""  # what made it: "Conv2d", "Linear", "MultiheadAttention", "Input"
    view: str = "auto"  # how the shape reads: "units", "plane", "maps" (tiles), "heads" (tiles), "pools" (eTorch's 4-D)
    place: tuple[float, float, float] | None = None  # where its middle is, in units; None: found by `placing`
    relation: str = ""  # how it lies to `other`: "above", "below", "right", "left", "behind", "front"; "" stacks it
    other: str = ""
    also: tuple[str, ...] = ()  # what else is a part of it: activations behind it, parameters


@dataclass(frozen=True, slots=True)
class Projection:
    """Weights between two layers."""

    name: str  # "features.3.weight", "Hidden1ToOutput": unique
    sender: str  # a layer
    receiver: str
    kind: str = "linear"  # "linear" (receiver, sender), "conv" (out, in, rows, columns), "" where weights are not known
    shape: tuple[int, ...] = ()  # of the weights
    stride: tuple[int, ...] = ()  # of a convolution, as are the others
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    type: str = "forward"  # or "recurrent", "skip", "lateral", "back": decides the arrow's looks


@dataclass(frozen=True, slots=True)
class Variable:
    """A thing that units, or weights, have a value of."""

    name: str  # "Act", "Grad", "Net"; of weights "Wt", "DWt"
    of: str = "unit"  # or "weight"
    doc: str = ""
    range: tuple[float, float] | None = None  # fixed; None: automatic
    zero_centred: bool = True


@dataclass(frozen=True, slots=True)
class Network:
    """All that a picture needs to know before there are values."""

    name: str
    layers: tuple[Layer, ...] = ()
    projections: tuple[Projection, ...] = ()
    variables: tuple[Variable, ...] = ()


def full_name(module: str, network: Network | None) -> str:
    """What a network calls a module, or a part of a layer: one model's "conv1" may be "net.conv1" among several."""
    known = [name for layer in network.layers for name in (layer.name, *layer.also)] if network is not None else []
    if not module or module in known:
        return module
    found = [name for name in known if name.endswith(f".{module}") or module.endswith(f".{name}")]
    return found[0] if len(found) == 1 else module


@dataclass(frozen=True, slots=True)
class Parameter:
    """A line of the form."""

    name: str  # "optimizers.adam.lr": unique
    value: Any  # text, a number, true or false, or a list of these
    kind: str = "number"  # or "integer", "text", "flag", "choice"
    editable: bool = False  # while it runs
    doc: str = ""
    group: str = ""  # a heading
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Where a run is, and what may be asked of it."""

    status: str = "idle"  # "running", "paused", "testing", "done", "lost" (killed), "idle" (nothing to control)
    counters: dict[str, Any] = field(default_factory=dict)  # {"Run": 1, "Epoch": 3, "Trial": 12, "Name": "pattern 7"}
    can: tuple[str, ...] = ()  # the `ACTIONS` that this host understands
    items: int = 0  # how many items there are to test; 0 where unknown
    batch: int = 0  # how many items a batch has
    step_n: int = 10  # what "step_n" does by default
    message: str = ""  # what it is doing, or why it stopped


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str = "float"  # "int", "float", "text", "tensor"
    shape: tuple[int, ...] = ()  # of a cell of tensors
    plotted: bool = True  # at first
    fixed: tuple[float, float] | None = None  # the range of its axis; None: automatic
    error: str = ""  # the column that holds its error bars


@dataclass(frozen=True, slots=True)
class TableHead:
    """A table as far as it is known before its rows."""

    name: str  # "train_epoch", "test_trial", "test_epoch", "run", "train_step", "patterns"
    title: str  # "Train epochs"
    x: str = ""  # the column along the x axis; "" counts the rows
    legend: str = ""  # the column whose values make a line each
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Every:
    """How often states are recorded: `count` trials or epochs apart; "auto": as often as costs no more than 1%."""

    unit: str = "auto"  # "auto", "trial", "epoch", "off"
    count: int = 1


AUTO, EACH_TRIAL = Every(), Every("trial")


@dataclass(frozen=True, slots=True)
class Wants:
    """What all viewers together look at; the host copies nothing else."""

    variables: tuple[str, ...] = ()  # of units: ("Act", "Grad"); empty: nobody looks
    weights: bool = False  # whether weights are looked at, too
    units: tuple[tuple[str, int], ...] = ()  # (layer, unit) whose weights are; of weights too large to be sent whole
    item: int = 0  # the batch item that must be among those sent
    train: Every = AUTO
    test: Every = EACH_TRIAL
    items: tuple[int, ...] = ()  # those that others look at; they are sent, too, where there is room


@dataclass(frozen=True, slots=True)
class Order:
    """What a page asks of the host."""

    kind: str  # "act" or "change"
    action: str = ""  # one of `ACTIONS`
    count: int = 0
    item: int = 0
    name: str = ""  # of a parameter
    value: Any = None
