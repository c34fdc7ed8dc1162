"""Records around a Sample in the watch.

As sent to the child, its statistics, alerts and delivery counts.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from torcheer.encoding import numbers_of
from torcheer.records import Sample

Key = tuple[str, str]  # layer, variable
SendMessage = Callable[[dict[str, Any]], object]  # sends one message to the training process: {"kind": "alert", …}

PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
LEAST_POWER, _GREATEST = -36, 20  # powers of two: 1.5e-11 and 1.0e6
_POSITIVE = [2.0**power for power in range(LEAST_POWER, _GREATEST + 1)]
# The outermost bins are unbounded; the middle one holds zero. A power of two belongs to the bin away from zero.
EDGES: tuple[float, ...] = (-math.inf, *(-edge for edge in reversed(_POSITIVE)), *_POSITIVE, math.inf)
BINS = len(EDGES) - 1
DISK_FULL = "disk_full"  # an alert like those of rules, for failed writes
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_NAMED: Final = 5  # keys whose dropped counts are listed


@dataclass(frozen=True, slots=True)
class Delivery:
    """One sample as the monitor process receives it, with its metadata."""

    sample: Sample  # its array is numpy's, and the child's own copy
    time_secs: float = 0.0  # when it was taken, since 1970
    device: str = "cpu"  # where it lived: "cuda:0"
    message: str = ""  # what the user wants to see beside it: "epoch:3"
    count: int = 0  # how often its key was seen, watched or not
    stride: int = 1  # every n-th number of it was sent
    whole: tuple[int, ...] = ()  # its shape, where only a part was sent
    finite: bool | None = None  # whether all of its numbers are, where only a part was sent
    summary: Statistics | None = None  # made on its own device; the array is a sample then, if there is one
    frozen: bool = False  # whether it is a weight that takes no gradient (`requires_grad=False`)
    scaled: bool = False  # whether a GradScaler had scaled the gradients of this update
    media: dict[str, Any] | None = None  # what it means, if a person logged it: an image, a text (`runlog.media`)
    type: str = ""  # its dtype in the training process, also one that numpy lacks: "bfloat16"

    def __post_init__(self) -> None:
        """Convert raw bits to numbers: as integers they would give wrong statistics."""
        array = self.sample.array
        if self.type and (numbers := numbers_of(self.type, array)) is not array:
            object.__setattr__(self, "sample", replace(self.sample, array=numbers))

    @property
    def key(self) -> tuple[str, str]:
        """Return (layer, variable), the key of a series over time."""
        return self.sample.layer, self.sample.variable


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one array: of its finite numbers, except for the counts.

    NaN where there are none.
    """

    count: int  # of all numbers
    minimum: float
    maximum: float
    mean: float
    std: float  # of the population
    norm: float  # Euclidean
    zeros: int
    nans: int
    infs: int
    percentiles: tuple[float, ...] = ()  # at PERCENTILES
    histogram: tuple[int, ...] = ()  # in the bins of EDGES, which do not depend on the data
    stride: int = 1  # computed over every n-th number


def statistics_of_sums(
    count: int, stride: int, total: float, norm: float, nonzero: float, nans: float, minimum: float, maximum: float,
    nonfinite: float,
) -> Statistics:  # fmt: skip
    """Make the statistics of `count` numbers, every `stride`-th of a tensor, of what a device has summed up of them."""
    finite = count - int(nonfinite)
    infs = int(nonfinite - nans)
    if not finite:
        none = math.nan
        return Statistics(count, none, none, none, none, none, 0, int(nans), infs, stride=stride)
    mean = min(max(total / finite, minimum), maximum)
    std = math.sqrt(max(norm * norm / finite - mean * mean, 0.0)) if minimum < maximum else 0.0
    zeros = finite - int(nonzero)
    return Statistics(count, minimum, maximum, mean, std, norm, zeros, int(nans), infs, stride=stride)


@dataclass(frozen=True, slots=True)
class Alert:
    """A warning about a value of the training run."""

    rule: str  # "dead_relu"
    layer: str
    variable: str
    step: int  # when it was detected
    since: int  # the first step with the problem
    what: str  # "98% of the outputs are zero"
    advice: str  # "lower the learning rate, or use a leaky ReLU"; "" where `what` says everything
    severity: str = "warning"  # "error": the run is lost; "note": it may be intended
    values: dict[str, Any] = field(default_factory=dict)  # the numbers behind it
    id: str = ""  # writer and number in the run's log; "" without a log

    def __str__(self) -> str:
        if not self.advice:
            return self.what
        where = f"{self.layer} ({self.variable})" if self.layer else self.variable
        since = f", since step {self.since}" if self.since != self.step else ""
        return f"{self.rule} at step {self.step}: {where}: {self.what}{since}. Try: {self.advice}."


def disk_full(error: Exception, folder: Path, variable: str, step: int) -> Alert | None:
    """Make the alert for a failed write if the disk is full; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    text = f"{os.strerror(error.errno)} in {folder}: it ends here"
    advice = "make room, or watch to another folder; statistics, rules and training go on"
    return Alert(DISK_FULL, "", variable, step, step, text, advice)


@dataclass(frozen=True, slots=True)
class Account:
    """Counts of samples by outcome.

    After `stop`, offered == handled + what was dropped + lost + damaged.
    """

    offered: int = 0
    handled: int = 0  # processed by the child
    dropped: dict[Key, int] = field(default_factory=dict)  # per key: refused, no room, overwritten unread
    lost: int = 0  # sent, but the child died or was stopped before it processed them
    damaged: int = 0  # received by the child with a wrong checksum
    restarts: int = 0
    written: int | None = None  # of those handled, how many are in the log; None before its end, or without one

    @property
    def missing(self) -> str:
        """Describe the values that were not delivered; "" if all were."""
        parts = [f"{self.lost + self.damaged:,} lost"] if self.lost or self.damaged else []
        if self.written is not None and self.written < self.handled:
            parts.append(f"{self.handled - self.written:,} not written")
        if self.dropped:
            worst = sorted(self.dropped.items(), key=lambda item: -item[1])
            named = ", ".join(f"{layer} ({variable}) {count:,}" for (layer, variable), count in worst[:_NAMED])
            more = f", … {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
            parts.append(f"{sum(self.dropped.values()):,} dropped: {named}{more}")
        return "; ".join(parts)
