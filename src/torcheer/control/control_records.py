"""The records of a controlled loop, as plain frozen data: its state, its parameters, and a viewer's requests.

`docs/decisions/0009-the-studio.md` describes the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from torcheer.wire.json_codec import Between, OneOf, Setting

ACTIONS = (
    "init", "train", "stop", "step_trial", "step_epoch", "step_run", "step_n", "test_trial", "test_item", "test_all",
    "new_seed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, shown as a line of the form."""

    name: str  # "optimizers.adam.lr": unique
    value: Any  # text, a number, true or false, or a list of these
    kind: str = "number"  # or "integer", "text", "flag", "choice"
    editable: bool = False  # while the loop runs
    doc: str = ""
    group: str = ""  # a heading
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A run's status and counters, and the actions it accepts."""

    status: str = "idle"  # "running", "paused", "testing", "done", "failed", "lost": killed, "idle": nothing to control
    counters: dict[str, Any] = field(default_factory=dict)  # {"Run": 1, "Epoch": 3, "Batch": 12, "Name": "item 7"}
    can: tuple[str, ...] = ()  # the `ACTIONS` that this host understands
    items: int = 0  # how many items there are to test; 0 where unknown
    batch: int = 0  # batch size
    step_n: int = 10  # default count of "step_n"
    message: str = ""  # its current activity, or why it stopped
    unit: str = "batch"  # what one step of it is called; "trial" in eTorch's simulations
    watched: bool = False  # whether the rules of a watch judge it


@dataclass(frozen=True, slots=True)
class Every:
    """How often states are recorded: every `count` trials or epochs; "auto": within 1% of the run time."""

    unit: Annotated[str, OneOf(("auto", "trial", "epoch", "off"))] = "auto"
    count: Annotated[int, Between(1)] = 1


AUTO, EACH_TRIAL = Every(), Every("trial")


@dataclass(frozen=True, slots=True)
class Wants:
    """The union of all viewers' subscriptions; the host copies nothing else."""

    variables: tuple[str, ...] = ()  # of units: ("Act", "Grad"); empty: no subscription
    weights: bool = False  # whether weights are subscribed, too
    units: tuple[tuple[str, int], ...] = ()  # (layer, unit): weight slices to send where a whole weight is too large
    item: int = 0  # the batch item that must be sent
    train: Every = AUTO
    test: Every = EACH_TRIAL
    items: tuple[int, ...] = ()  # of other viewers; sent too, where there is room
    layers: tuple[str, ...] = ()  # that a page has open; empty: all
    inspected: tuple[str, ...] = ()  # layers whose parameters, and the gradients of these, are sent too

    def has_layer(self, name: str) -> bool:
        """True if values of a layer are wanted."""
        return not self.layers or name in self.layers


@dataclass(frozen=True, slots=True)
class Act:
    """A pressed button."""

    action: Annotated[str, OneOf(ACTIONS)]
    count: Annotated[int, Between(0, 10**9)] = 0  # of "step_n"
    item: Annotated[int, Between()] = 0  # of "test_item"


@dataclass(frozen=True, slots=True)
class Change:
    """A changed parameter."""

    name: str
    value: Annotated[Any, Setting()]


Order = Act | Change  # a page's request to the loop
