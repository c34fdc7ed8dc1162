"""What passes between the parts of the inspector, as plain frozen data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from torcheer.inspector.bits import numbers_of
from torcheer.records import Sample


@dataclass(frozen=True, slots=True)
class Sent:
    """A value as it arrives in the child."""

    sample: Sample  # its array is numpy's, and the child's own copy
    time_secs: float = 0.0  # when it was taken, since 1970
    device: str = "cpu"  # where it lived: "cuda:0"
    message: str = ""  # what the user wants to see beside it: "epoch:3"
    count: int = 0  # how often its key was seen, watched or not
    stride: int = 1  # every n-th number of it was sent
    whole: tuple[int, ...] = ()  # its shape, where only a part was sent
    finite: bool | None = None  # whether all of its numbers are, where only a part was sent
    summary: Summary | None = None  # made on its own device; the array is a sample then, if there is one
    frozen: bool = False  # whether it is a weight that takes no gradient (`requires_grad=False`)
    scaled: bool = False  # whether a GradScaler had multiplied the gradients that this update comes from
    type: str = ""  # of its numbers, as the training process has them: "bfloat16", also where numpy has no such

    def __post_init__(self) -> None:
        """Bits are no numbers: whoever looks would take the largest for a small one."""
        array = self.sample.array
        if self.type and (found := numbers_of(self.type, array)) is not array:
            object.__setattr__(self, "sample", replace(self.sample, array=found))

    @property
    def key(self) -> tuple[str, str]:
        """What the values over time have in common."""
        return self.sample.layer, self.sample.variable


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of one array; of those that are finite, but for the counts. Not a number where there are none."""

    count: int  # numbers in it
    minimum: float
    maximum: float
    mean: float
    std: float  # of the population
    norm: float  # Euclidean
    zeros: int
    nans: int
    infs: int
    percentiles: tuple[float, ...] = ()  # at `statistics.PERCENTILES`
    histogram: tuple[int, ...] = ()  # in the bins of `statistics.EDGES`, which do not depend on the data
    stride: int = 1  # of every n-th number only


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that looks wrong."""

    rule: str  # "dead_relu"
    layer: str
    variable: str
    step: int  # when it was noticed
    since: int  # the step from which on it was so
    what: str  # "98% of the outputs are zero"
    advice: str  # "lower the learning rate, or use a leaky ReLU"
    severity: str = "warning"  # "error": the run is lost; "note": it may be meant
    values: dict[str, Any] = field(default_factory=dict)  # the numbers behind it

    def __str__(self) -> str:
        where = f"{self.layer} ({self.variable})" if self.layer else self.variable
        since = f", since step {self.since}" if self.since != self.step else ""
        return f"{self.rule} at step {self.step}: {where}: {self.what}{since}. Try: {self.advice}."


@dataclass(frozen=True, slots=True)
class Plan:
    """What a child is to do, as JSON carries it there."""

    to: str = ""  # the folder for log, alerts and videos; "" writes none
    statistics: bool = True  # sum up every value, judge it by the rules
    rules: dict[str, Any] = field(default_factory=dict)  # name -> its settings, as `rules.settle` returns them
    keep: tuple[str, ...] = ()  # patterns of keys ("features.*/output") whose arrays go into the log whole
    video: dict[str, Any] = field(default_factory=dict)  # settings of `video.Videos`; empty for none
    timeout_secs: float = 0.0  # ends after so long without data; 0 never
    unique_id: int = 0  # the seed's name for a child


class Reader(Protocol):
    """Someone in the child who looks at everything that arrives."""

    def take(self, sent: Sent) -> None:
        """Look at one value. Raising closes this reader's eyes for the value's key, and is reported once."""

    def tick(self) -> None:
        """Called at least four times a second while there is time: write what waits."""

    def close(self) -> None:
        """Nothing more will come."""


Say = Callable[[dict[str, Any]], None]  # tells the training process something: {"kind": "alert", …}
