"""What a loop under control tells a viewer and what a viewer asks of it, as plain frozen data.

`docs/decisions/0009-the-studio.md` says who sends what and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ACTIONS = (
    "init", "train", "stop", "step_trial", "step_epoch", "step_run", "step_n", "test_trial", "test_item", "test_all",
    "new_seed",
)  # fmt: skip


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
