"""When a stage is done: a question about the rows of its epochs, so that a resumed run answers it the same."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from torcheer.config import nearest
from torcheer.errors import BadArgument

Rows = Sequence[dict[str, Any]]

MODES = {"min": 1, "max": -1}
MORE_IS_BETTER = frozenset(
    "acc accuracy top1 top5 f1 f1score precision recall auc auroc map iou dice bleu rouge psnr ssim r2 score".split()
)


class EpochsCompleted:
    """So many epochs were trained."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = whole(num_epochs, "num_epochs", 0)

    def is_met(self, rows: Rows) -> bool:
        """Whether it is time to stop."""
        return len(rows) >= self.num_epochs


class EarlyStopping:
    """A column has not become better than its best, by more than `min_delta`, for more than `patience` epochs.

    Losses 3, 2, 2.1, 2.2 with a patience of 1 stop after the fourth: one epoch without a better one is waited for, the
    next ends it. 0 stops at the first.

    `mode` is "min" where less is better and "max" where more is; without one the column's name decides: more is
    better of an acc, an f1 or the like. What is not a number is no better than anything.
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
        """Whether it is time to stop."""
        if self.max_epochs is not None and len(rows) >= self.max_epochs:
            return True
        best, since = math.inf, 0
        for row in rows:
            value = self._value(row)
            if value < best - self.min_delta:
                best, since = value, 0
            else:
                since += 1
        return since > self.patience

    def _value(self, row: dict[str, Any]) -> float:
        """What is to become less."""
        if self.monitor not in row:
            known = [name for name in row if name != "epoch"]
            near = nearest(self.monitor, known)
            raise BadArgument(f"EarlyStopping watches {self.monitor!r}, and there is only {', '.join(known)}.{near}")
        return float(row[self.monitor]) * MODES[self.mode]


def better(column: str) -> str:
    """Whether more or less of a column is better, as its name has it: "val acc", "f1_score", "accuracy loss"."""
    words = set(re.findall("[a-z0-9]+", column.lower()))
    return "max" if words & MORE_IS_BETTER and not words & {"loss", "error"} else "min"


def whole(number: Any, name: str, least: int) -> int:
    """A whole number, or why it is none."""
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise BadArgument(f"{name}={number!r}: a whole number of epochs, {least} or more")
    return number
