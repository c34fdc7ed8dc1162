"""The log of parameters that were changed by hand: a resumed run applies each again, where it was made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torcheer.errors import TorcheerError
from torcheer.training.observe.metric_csv import replace_csv

if TYPE_CHECKING:
    from torcheer.control.parameter_form import ParameterChange
    from torcheer.runlog.log_rows import Row
    from torcheer.training.observe.training_log import TrainingLog
    from torcheer.training.session import Session
    from torcheer.training.session_parts import Place

COLUMNS = ("step", "epoch", "name", "before", "after")


class ChangeLog:
    """The table `changes` of a run's log, and `metrics/changes.csv`: which parameter was changed after which step.

    Rows are on disk before the next step runs, and a checkpoint counts those that it holds (`applied`). The others were
    made after it, by a trainer that ended before its next checkpoint.
    """

    def __init__(self, log: TrainingLog | None) -> None:
        self._log = log
        self._rows: list[list[Any]] = []
        self.applied = 0

    @property
    def is_pending(self) -> bool:
        """True while changes are still to be applied."""
        return self.applied < len(self._rows)

    @property
    def rows(self) -> list[list[Any]]:
        """The changes so far: step, epoch, name, value before and after."""
        return self._rows[: self.applied]

    def begin(self) -> None:
        """Begin a run without changes."""
        self._rows, self.applied = [], 0

    def resume(self, applied: int | None, step: int) -> None:
        """Continue after a checkpoint that holds the first `applied` changes; None: all up to its step."""
        if self._log is not None:
            rows: Iterable[Row] = self._log.tables().get("changes", ())
            names = ("Epoch", *COLUMNS[2:])
            self._rows = [[row.step, *(row.cells.get(name) for name in names)] for row in rows]
        if applied is None:  # a checkpoint of torcheer 0.1, written right after each change
            applied = sum(row[0] <= step for row in self._rows)
        self.applied = min(applied, len(self._rows))

    def add(self, change: ParameterChange, place: Place) -> None:
        """Record a change that was made by hand; pending ones of the same parameter no longer hold."""
        pending = [row for row in self._rows[self.applied :] if row[2] != change.name]
        row = [place.step, place.epoch + 1, change.name, _cell(change.before), _cell(change.after)]
        self._rows[self.applied :] = [row, *pending]
        self.applied += 1
        if self._log is not None:
            rows = [(row[0], dict(zip(("Epoch", *COLUMNS[2:]), row[1:]))) for row in self._rows]
            self._log.replace("changes", rows)
            self.export()

    def export(self) -> None:
        """Write the CSV file."""
        if self._log is not None:
            replace_csv(self._log.directory / "metrics" / "changes.csv", COLUMNS, self._rows)

    def apply_due(self, session: Session) -> Iterator[str]:
        """Apply the pending changes that were made up to here; yield a sentence about each."""
        from torcheer.training.control.session_form import change_parameter  # only where something was changed

        here = (session.place.step, session.place.epoch + 1)
        while self.is_pending and tuple(self._rows[self.applied][:2]) <= here:
            _, _, name, _, value = self._rows[self.applied]
            self.applied += 1
            try:
                if (change := change_parameter(session, name, value)) is not None:
                    yield f"{change}: as it was changed before this run was interrupted"
            except TorcheerError as error:
                yield f"{name} was changed to {value} before this run was interrupted, and is not now: {error}"


def _cell(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)
