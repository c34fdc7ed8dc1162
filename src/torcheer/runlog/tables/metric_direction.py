"""Whether more or less of a number is better, by its name."""

from __future__ import annotations

import re
from typing import Final

_MORE_IS_BETTER: Final = frozenset(
    "acc accuracy top1 top5 f1 f1score precision recall auc auroc map iou dice bleu rouge psnr ssim r2 score".split()
)


def better(column: str) -> str:
    """Return "max" or "min": what is better for a column, by its name.

    It is "max" for "val acc" and "min" for "accuracy loss".
    """
    words = set(re.findall("[a-z0-9]+", column.lower()))
    return "max" if words & _MORE_IS_BETTER and not words & {"loss", "error"} else "min"
