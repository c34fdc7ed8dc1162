"""Stop conditions of stages.

Functions of the rows of their epochs, so that a resumed run decides alike. One's own has a method `is_met(rows)`, or
is called with the epochs of the stage so far and their columns, as TorchAssistant's are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass
from torcheer.runlog.tables.metric_direction import better
from torcheer.terminal import did_you_mean, plural

Rows = Sequence[dict[str, Any]]

MODES = {"min": 1, "max": -1}


class EpochsCompleted(metaclass=PublicClass):
    """Stop after `num_epochs` epochs."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = whole(num_epochs, "num_epochs", 0)

    def is_met(self, rows: Rows) -> bool:
        """Return whether to stop."""
        return len(rows) >= self.num_epochs


class EarlyStopping(metaclass=PublicClass):
    """Stop when a column has not improved by `min_delta` for more than `patience` epochs.

    Losses 3, 2, 2.1, 2.2 with a patience of 1 stop after the fourth: one epoch without improvement is tolerated, the
    next ends it. 0 stops at the first.

    `mode` is "min" where less is better and "max" where more is; without one the column's name decides: more is
    better of an acc, an f1 or the like. NaN is never an improvement.

    - `monitor`: the column, such as "val loss".
    - `max_epochs`: stop after so many in any case.
    """

    def __init__(
        self, monitor: str, min_delta: float = 0.0, patience: int = 1, mode: str = "", max_epochs: int | None = None
    ) -> None:
        if mode and mode not in MODES:
            raise BadArgument(f"mode={mode!r}: 'min' where less is better, 'max' where more is")
        if not 0 <= min_delta < math.inf:
            raise BadArgument(f"min_delta={min_delta}: by how much a value must be better, which is not negative")
        self.monitor, self.min_delta, self.patience = monitor, min_delta, whole(patience, "patience", 0)
        self.mode = mode or better(monitor)
        self.max_epochs = None if max_epochs is None else whole(max_epochs, "max_epochs", 1)

    def is_met(self, rows: Rows) -> bool:
        """Return whether to stop."""
        return self._is_last(rows) or len(rows) - self._best(rows) > self.patience

    def reason(self, rows: Rows) -> str:
        """Return why it is met."""
        best = self._best(rows)
        since = len(rows) - best
        if since <= self.patience:
            return f"its max_epochs is {self.max_epochs}" if self._is_last(rows) else ""
        why = f"{self.monitor} has not improved for {plural(since, 'epoch')}"
        return f"{why} (best: {rows[best - 1][self.monitor]:.4f} in epoch {rows[best - 1]['epoch']})" if best else why

    def _is_last(self, rows: Rows) -> bool:
        return self.max_epochs is not None and len(rows) >= self.max_epochs

    def _best(self, rows: Rows) -> int:
        """Return the number of the best row, from 1; 0 where none was an improvement, as of NaN alone."""
        best, number = math.inf, 0
        for each, row in enumerate(rows, 1):
            if (value := self._value(row)) < best - self.min_delta:
                best, number = value, each
        return number

    def _value(self, row: dict[str, Any]) -> float:
        """Return the monitored value, with the sign that makes less better."""
        if self.monitor not in row:
            columns = [name for name in row if name != "epoch"]
            near = did_you_mean(self.monitor, columns)
            raise BadArgument(f"EarlyStopping watches {self.monitor!r}, and there is only {', '.join(columns)}.{near}")
        return float(row[self.monitor]) * MODES[self.mode]


def is_met(stop: Any, rows: Rows) -> bool:
    """Return whether a stage ends, by a condition of either form; the called form is not asked before an epoch."""
    if not callable(stop):
        return bool(stop.is_met(rows))
    history = [{name: value for name, value in row.items() if name != "epoch"} for row in rows]
    return bool(history) and bool(stop(len(history), history))


def reason_met(stop: Any, rows: Rows) -> str:
    """Return by which condition a stage ended, and why; "" of a number of epochs, which says it itself."""
    if stop is None or isinstance(stop, EpochsCompleted):
        return ""
    name = getattr(stop, "__name__", type(stop).__name__)
    return f"{name}, as {stop.reason(rows)}" if isinstance(stop, EarlyStopping) else str(name)


def whole(number: Any, name: str, least: int) -> int:
    """Return a whole number; raise where it is none."""
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise BadArgument(f"{name}={number!r}: a whole number of epochs, {least} or more")
    return number
