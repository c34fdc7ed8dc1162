"""Whether more or less of a number is better, by its name; which of several is the best."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

_Entry = TypeVar("_Entry")

_MORE_IS_BETTER: Final = frozenset(
    "acc accuracy top1 top5 f1 f1score precision recall auc auroc map iou dice bleu rouge psnr ssim r2 score".split()
)


def better(column: str) -> str:
    """Return "max" or "min": what is better for a column, by its name.

    It is "max" for "val acc" and "min" for "accuracy loss".
    """
    words = set(re.findall("[a-z0-9]+", column.lower()))
    return "max" if words & _MORE_IS_BETTER and not words & {"loss", "error"} else "min"


def first_best(keep_best: str, entries: Iterable[tuple[Mapping[str, float], _Entry]]) -> _Entry | None:
    """Return the best of entries by a column of their rows; of equally good ones the first. None where none has it.

    keep_best: the column, or "-x" where more of x is better and its name does not say so.
    """
    column = keep_best.removeprefix("-")
    sign = -1 if keep_best.startswith("-") or better(column) == "max" else 1
    ranked = [(sign * row[column], entry) for row, entry in entries if column in row]
    return min(ranked, key=lambda rank: rank[0])[1] if ranked else None
