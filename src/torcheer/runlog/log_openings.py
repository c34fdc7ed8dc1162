"""The openings of a writer's log: which of its rows still hold after later ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torcheer.archive import Archive
from torcheer.runlog.log_frames import EPOCHS, METRICS, UNCUT, Frame, decode_column
from torcheer.samples import Key

_LATE = {
    (name, METRICS) for name in ("wait_secs", "step_secs", "forward_secs")
}  # sent after the next step has begun, for the previous step
_WHOLE_RUN = ("", "")  # an alert about no layer


class Row(NamedTuple):
    """A row of a table."""

    step: int
    time_secs: float
    cells: dict[str, Any]


class Opening:
    """One opening of a log: up to where it cut what was before, or its first step and the keys that it has of it."""

    def __init__(self, cut: dict[str, int] | None) -> None:
        self.cut = cut
        self.frames: list[tuple[Archive, Frame]] = []
        self._first: int | None = None
        self._keys: set[Key] = set()

    @classmethod
    def of(cls, cut: dict[str, int] | None, frames: list[Frame]) -> Opening:
        """An opening with these frames, oldest first."""
        opening = cls(cut)
        for frame in frames:
            opening.note(frame)
        return opening

    def add(self, archive: Archive, frame: Frame) -> bool:
        """Add a frame; True if more of earlier openings may be outdated by it."""
        self.frames.append((archive, frame))
        return self.note(frame)

    def note(self, frame: Frame) -> bool:
        """Take a frame into account, from the first on; True if it may cover more than before."""
        if self.cut is not None:
            return False
        tables = frame["about"].get("rows", {}).values()
        first = self._first
        if first is not None and frame["step"] != first and all(first not in table["step"] for table in tables):
            return False
        keys = list(_keys(frame))
        if first is None:
            self._first = min((step for step, key in keys if key not in _LATE), default=None)
        self._keys.update(key for step, key in keys if step == self._first)
        return self._first is not None

    def covers(self, step: int, key: Key) -> bool:
        """True if an earlier opening's value of this step and key is outdated."""
        if self._first is None or step != self._first:
            return self._first is not None and step > self._first
        return key in self._keys or key == _WHOLE_RUN


class Later(NamedTuple):
    """What later openings say of an opening."""

    step: float = math.inf  # the last one that holds
    epoch: float = math.inf
    openings: tuple[Opening, ...] = ()  # those without a cut: their first rows say it

    def after(self, opening: Opening) -> Later:
        """The same for one opening earlier."""
        if opening.cut is None:
            return self._replace(openings=(*self.openings, opening))
        step, epoch = (opening.cut.get(name, math.inf) for name in ("step", "epoch"))
        return self._replace(step=min(self.step, step), epoch=min(self.epoch, epoch))

    def holds(self, step: int, key: Key, epoch: int | None = None) -> bool:
        """True if no later opening has cut off that step, or reached it with the same key."""
        if key[1] not in UNCUT and (step > self.step if epoch is None else epoch > self.epoch):
            return False
        return not any(opening.covers(step, key) for opening in self.openings)


def later_openings(openings: Sequence[Opening]) -> list[Later]:
    """For each opening of a log, what those after it say of it."""
    later = [Later()]
    for opening in reversed(openings[1:]):
        later.append(later[-1].after(opening))
    return later[::-1]


def held_rows(later: Later, table: str, rows: list[Row]) -> Iterator[Row]:
    """Yield the rows of an opening that still hold."""
    if later == Later():
        yield from rows
        return
    for row in rows:
        epoch = row.cells.get("epoch") if table.startswith(EPOCHS) else None
        if table != METRICS:
            if later.holds(row.step, ("", table), epoch):
                yield row
        else:  # a step's metrics may come in several rows
            names = [name for name in row.cells if later.holds(row.step, (name, table))]
            if names:
                yield row._replace(cells={name: row.cells[name] for name in names})


def _keys(frame: Frame) -> Iterator[tuple[int, Key]]:
    """Yield the step and key of everything in a frame."""
    for name in frame["about"].get("values") or ():
        yield frame["step"], (name[0], name[1])
    for record in frame["about"].get("samples", ()):
        if isinstance(record, dict):
            yield frame["step"], (str(record.get("name")), str(record.get("kind")))
    for table, columns in frame["about"].get("rows", {}).items():
        for row in rows_of(columns):
            names = row.cells if table == METRICS else ("",)
            yield from ((row.step, (name, table)) for name in names)


def rows_of(columns: dict[str, Any]) -> list[Row]:
    """The rows of a table's columns in a frame."""
    cells = {name: decode_column(column) for name, column in columns["cells"].items()}
    return [
        Row(step, when, {name: column[place] for name, column in cells.items() if column[place] is not None})
        for place, (step, when) in enumerate(zip(columns["step"], columns["time"]))
    ]
