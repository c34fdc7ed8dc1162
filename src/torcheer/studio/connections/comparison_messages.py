"""What is said of two side by side: checkpoints of runs, model files, recorded passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torcheer.wire.json_codec import Between


@dataclass(frozen=True, slots=True)
class ComparisonCame:
    """What is shown are two side by side; their rows are the table "differences"."""

    first: str  # their names
    second: str
    summary: tuple[str, ...]  # sentences: how many differ, where they part
    first_difference: str  # the layer that differs first; "" if none does so far
    compared: int  # rows so far
    total: int  # rows that there will be; 0 while that is not known
    done: bool


@dataclass(frozen=True, slots=True)
class OpenComparison:
    """Show the checkpoints of two runs of the folder, or of one, side by side. A `Hello` follows."""

    first: Annotated[int, Between()]  # runs
    second: Annotated[int, Between()]
    first_step: int = -1  # of the checkpoint; -1: the newest, or what a recorded pass has
    second_step: int = -1
