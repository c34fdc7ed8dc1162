"""The rows of a watch's log: every logged value, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Archive, Entry
from torcheer.errors import TorcheerError
from torcheer.runlog.watch_log import COUNTS, LAYER, STATISTICS
from torcheer.samples import BINS, Key

Array = NDArray[Any]
Columns = dict[str, list[Any]]
_LATE = {("wait_secs", "metric"), ("step_secs", "metric")}  # sent after the next step has begun, for the previous step


class WatchRows:
    """Every value in a log, without those that a later writer of the same log has replaced."""

    def __init__(self, archive: Archive, problems: list[str]) -> None:
        self.archive, self._problems = archive, problems
        self.names: list[list[Any]] = []  # layer, variable, type, shape; optionally device and message
        self._where: list[tuple[int, int]] = []  # frame number, row in the frame
        self._openings: list[_Opening] = []
        self._read_all()
        self.places: dict[Key, list[int]] = {}
        for place, name in enumerate(self.names):
            self.places.setdefault((name[0], name[1]), []).append(place)

    def _read_all(self) -> None:
        steps: list[int] = []
        opening: list[int] = []
        statistics, counts = [np.empty((0, len(STATISTICS)))], [np.empty((0, len(COUNTS)), np.int64)]
        for number, frame in enumerate(self.archive.frames):
            if (read := self._read(frame)) is None:
                continue
            names, frame_statistics, frame_counts = read
            statistics.append(frame_statistics)
            counts.append(frame_counts)
            self.names += names
            self._where += [(number, row) for row in range(len(names))]
            steps += [frame["step"]] * len(names)
            opening += [self._note_opening(frame, names)] * len(names)
        self.steps = np.array(steps, np.int64)
        self.statistics, self.counts = np.concatenate(statistics), np.concatenate(counts)
        self._drop_replaced(np.array(opening, np.int64))

    def _read(self, frame: dict[str, Any]) -> tuple[list[list[Any]], Array, Array] | None:
        entries = {entry.variable: entry for entry in frame["entries"] if entry.layer == LAYER}
        names = frame["about"].get("rows")
        try:
            numbers, counts = (self.archive.array(entries[name]) for name in ("statistics", "counts"))
        except (KeyError, TorcheerError) as error:
            self._problems.append(f"step {frame['step']}: its statistics cannot be read: {error}")
            return None
        shapes = numbers.shape, counts.shape
        if not isinstance(names, list) or shapes != ((len(names), len(STATISTICS)), (len(names), len(COUNTS))):
            self._problems.append(f"step {frame['step']}: its statistics are of another version of torcheer")
            return None
        return names, numbers, counts

    def _note_opening(self, frame: dict[str, Any], names: list[list[Any]]) -> int:
        """The number of the log's opening that a frame belongs to."""
        if "opened" in frame["about"] or not self._openings:
            self._openings.append(_Opening(float(frame["about"].get("opened", 0.0))))
        self._openings[-1].add_frame(frame["step"], {(name[0], name[1]) for name in names})
        return len(self._openings) - 1

    def _drop_replaced(self, opening: Array) -> None:
        """Drop rows replaced by a run that restarted, or that resumed from an earlier step."""
        if len(self._openings) < 2:
            return
        keep = [
            place
            for place, (step, number) in enumerate(zip(self.steps.tolist(), opening.tolist()))
            if self._is_newest(number, step, (self.names[place][0], self.names[place][1]))
        ]
        self.steps, self.statistics, self.counts = self.steps[keep], self.statistics[keep], self.counts[keep]
        self.names, self._where = [self.names[place] for place in keep], [self._where[place] for place in keep]

    def _is_newest(self, number: int, step: int, key: Key) -> bool:
        return not any(later.covers(step, key) for later in self._openings[number + 1 :])

    @property
    def opened(self) -> float:
        """When the log was last opened, in seconds since 1970; 0 if nothing was written."""
        return self._openings[-1].when if self._openings else 0.0

    def holds(self, opened: float, step: int, key: Key) -> bool:
        """True if no later opening of the log has reached that step and key."""
        return not any(later.covers(step, key) for later in self._openings if later.when > opened)

    def _entry(self, place: int, layer: str, variable: str, item: int) -> Entry | None:
        wanted = (layer, variable, item)
        entries: list[Entry] = self.archive.frames[self._where[place][0]]["entries"]
        return next((entry for entry in entries if (entry.layer, entry.variable, entry.item) == wanted), None)

    def histogram(self, place: int) -> Array:
        """The histogram of a row; zeros if it has none."""
        binned, entry = int(self.counts[place, COUNTS.index("binned")]), self._entry(place, LAYER, "histogram", -1)
        histogram: Array = np.zeros(BINS, np.int64)
        if binned >= 0 and entry is not None:
            histogram += self.archive.array(entry)[binned]
        return histogram

    def kept_entry(self, place: int) -> Entry | None:
        """The archive entry of a row's array, if it was kept."""
        layer, variable = self.names[place][:2]
        return self._entry(place, layer, variable, int(self.counts[place, COUNTS.index("item")]))

    def column(self, name: str, places: Array) -> Array:
        """One number of each row.

        `finite`: whether all of a value's numbers are, as far as they were checked.
        """
        if name in STATISTICS:
            statistics: Array = self.statistics[places, STATISTICS.index(name)]
            return statistics
        counts: Array = self.counts[places, COUNTS.index(name)]
        if name == "finite":
            none_bad = self.column("nans", places) + self.column("infs", places) == 0
            return np.where(counts < 0, none_bad, counts > 0)
        return counts

    def table(self, places: Array) -> Columns:
        """The rows as plain columns."""
        names = [self.names[place] for place in places]
        columns: Columns = {"step": self.steps[places].tolist()}
        columns["layer"], columns["variable"] = [name[0] for name in names], [name[1] for name in names]
        columns |= {name: self.column(name, places).tolist() for name in (*STATISTICS, *COUNTS[:-1])}
        columns["type"], columns["shape"] = [name[2] for name in names], [list(name[3]) for name in names]
        columns["device"] = [name[4] if len(name) > 4 else "cpu" for name in names]
        columns["message"] = [name[5] if len(name) > 5 else "" for name in names]
        return columns


class _Opening:
    """One writer's part of a log: its first step, and the keys that it has of that step."""

    def __init__(self, when: float) -> None:
        self.when = when
        self._first: int | None = None
        self._keys: set[Key] = set()

    def add_frame(self, step: int, keys: set[Key]) -> None:
        if self._first is None and keys - _LATE:
            self._first = step
        if self._first == step:
            self._keys |= keys

    def covers(self, step: int, key: Key) -> bool:
        """True if an earlier opening's value of this step and key is outdated."""
        return self._first is not None and (step > self._first or (step == self._first and key in self._keys))
