"""The openings of a writer's log: which of its rows still hold after later ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torcheer.runlog.log_frames import EPOCHS, UNCUT, Frame, decode_column


class Row(NamedTuple):
    """A row of a table."""

    step: int
    time_secs: float
    cells: dict[str, Any]


class Held(NamedTuple):
    """What holds of an opening after the cuts of later ones: the last step, and of epochs' rows the last epoch."""

    step: float = math.inf
    epoch: float = math.inf

    def before(self, cut: dict[str, int] | None) -> Held:
        """What holds of what stands before an opening with this cut."""
        step, epoch = ((cut or {}).get(name, math.inf) for name in self._fields)
        return Held(min(self.step, step), min(self.epoch, epoch))

    def has(self, step: int, table: str = "", epoch: int | None = None) -> bool:
        """True if a row of that step, or of that epoch, still holds."""
        return table in UNCUT or (step <= self.step if epoch is None else epoch <= self.epoch)


def begins_opening(frame: Frame) -> bool:
    """Whether an opening begins with a frame, or a part of one that cuts off what stands before."""
    return "opened" in frame["about"] or "cut" in frame["about"]


def held_after(cuts: Sequence[dict[str, int] | None]) -> list[Held]:
    """For each opening of a log, by the cuts of all, what of it holds."""
    held = [Held()]
    for cut in reversed(cuts[1:]):
        held.append(held[-1].before(cut))
    return held[::-1]


def held_rows(held: Held, table: str, rows: list[Row]) -> Iterator[Row]:
    """Yield the rows of an opening that still hold."""
    if held == Held():
        yield from rows
        return
    for row in rows:
        if held.has(row.step, table, row.cells.get("epoch") if table.startswith(EPOCHS) else None):
            yield row


def rows_of(columns: dict[str, Any]) -> list[Row]:
    """The rows of a table's columns in a frame."""
    cells = {name: decode_column(column) for name, column in columns["cells"].items()}
    return [
        Row(step, when, {name: column[place] for name, column in cells.items() if column[place] is not None})
        for place, (step, when) in enumerate(zip(columns["step"], columns["time"]))
    ]
