"""The index of a folder of runs: the facts of each, kept between two looks, and read again where files changed."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from torcheer.errors import CannotWrite
from torcheer.studio.connections.messages import Run
from torcheer.studio.runs.index_file import IndexedRun, load_index, save_index
from torcheer.studio.runs.run_facts import is_locked, read_facts, stamp_at
from torcheer.studio.runs.viewer_folder import place_for

_WORTH_SAVING_SECS: Final = 0.5  # of reading
_ENDS: Final = {"": "ended", "failed": "failed", "lost": "killed"}
_SAVE_SECS: Final = 60.0  # between two saves


class RunIndex:
    """The facts of a folder's runs by their number, which is the place of a run in the list of paths."""

    def __init__(
        self, folder: Path, kind_of: Callable[[Path], str], is_live: Callable[[Path], bool],
        check: Callable[[Path], object] | None = None,
    ) -> None:  # fmt: skip
        """`check` raises for a run that may not be read; what it leaves is kept apart from what others read."""
        self.folder, self._kind_of, self._is_live, self._check = folder, kind_of, is_live, check
        self._file = place_for(folder, ".index" if check is None else ".checked-index")
        self._stored = load_index(self._file) if self._file else {}
        shared = {id(run.series): run.series for run in self._stored.values()}  # hashing 1,000 names takes 10 µs
        self._series: dict[tuple[str, ...], tuple[str, ...]] = {series: series for series in shared.values()}
        self.runs: dict[int, IndexedRun] = {}
        self.status: dict[int, str] = {}  # "live", "running"; not there: over
        self.revision = 0  # grows with each change
        self._paths: Sequence[Path] = ()
        self._names: list[str] = []  # of the paths
        self._waiting = deque[tuple[int, int]]()  # number and stamp of runs to be read
        self._reading = Lock()
        self._unsaved_secs, self._next_save = 0.0, 0.0

    @property
    def total(self) -> int:
        """How many runs there are, read or not."""
        return len(self.runs) + sum(number not in self.runs for number, _ in list(self._waiting))

    @property
    def waiting(self) -> int:
        """How many runs are still to be read, for the first time or again."""
        return len(self._waiting)

    def status_of(self, number: int) -> str:
        """What a run that was read does, "live" or "running", or how it ended: "ended", "failed", "killed"."""
        return self.status.get(number) or _ENDS[self.runs[number].facts.outcome]

    def name_of(self, number: int) -> str:
        """A run's path within the folder."""
        return self._names[number]

    def path_of(self, number: int) -> Path:
        """Where a run lies."""
        return self._paths[number]

    def refresh(self, paths: Sequence[Path], budget_secs: float) -> bool:
        """Notice changed files and read changed runs, for about so long; True if anything changed.

        What is left waits for the next call. From any thread, one at a time.
        """
        with self._reading:
            before = self.revision
            self._take_paths(paths)
            if self._stored:
                self._take_stored()  # listed at once; the next call looks for what has changed since
                return self.revision != before
            if not self._waiting:
                self._notice()
            self._read(time.monotonic() + budget_secs)
            self._save()
            return self.revision != before

    def known_changes(self) -> dict[str, float]:
        """When the runs of the index file were changed last, as of then: seconds since 1970 by path in the folder."""
        return {name: run.facts.changed_secs for name, run in self._stored.items()}

    def _take_paths(self, paths: Sequence[Path]) -> None:
        """Use these paths; runs keep their numbers, so the first ones are as they were."""
        new = paths[len(self._names) :]
        self._paths, self._names = list(paths), self._names + [relative_name(path, self.folder) for path in new]

    def forget_stamp(self, number: int) -> None:
        """Read a run again with the next refresh."""
        with self._reading:
            if number in self.runs:
                self._waiting.appendleft((number, -1))

    # -- noticing ------------------------------------------------------------------------------------------------------

    def _notice(self) -> None:
        status: dict[int, str] = {}
        for number, path in enumerate(self._paths):
            seen = stamp_at(str(path))
            if seen is None:
                if self.runs.pop(number, None) is not None:
                    self.revision += 1
                continue
            stamp, is_open = seen
            if is_open and (state := self._state(path)):
                status[number] = state
            if number not in self.runs or self.runs[number].stamp != stamp:
                self._waiting.append((number, stamp))
        if status != self.status:
            self.status, self.revision = status, self.revision + 1

    def _take_stored(self) -> None:
        """Use what the index file knows, without a look at the runs."""
        for number in range(len(self._paths)):
            if (stored := self._stored.get(self.name_of(number))) is not None:
                self.runs[number], self.revision = stored, self.revision + 1
        self._stored = {}

    def _state(self, path: Path) -> str:
        return "live" if self._is_live(path) else "running" if is_locked(path) else ""

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, deadline: float) -> None:
        began = time.monotonic()
        while self._waiting:
            number, stamp = self._waiting.popleft()
            path = self._paths[number]
            if stamp < 0:
                seen = stamp_at(str(path))
                if seen is None:
                    continue
                stamp = seen[0]
            facts = read_facts(path, self._kind_of(path), self._check)
            self.runs[number] = IndexedRun.of(stamp, facts, self._series)
            self.revision += 1
            if time.monotonic() > deadline:
                break
        self._unsaved_secs += time.monotonic() - began

    def _save(self) -> None:
        """Save the index when that spares enough reading; it can be made again, so no error matters."""
        if self._file is None or self._waiting or self._unsaved_secs < _WORTH_SAVING_SECS:
            return
        if time.monotonic() < self._next_save:
            return
        self._unsaved_secs, self._next_save = 0.0, time.monotonic() + _SAVE_SECS
        try:
            save_index(self._file, {self.name_of(number): run for number, run in self.runs.items()})
        except (CannotWrite, OSError):
            self._file = None

    def listed(self) -> Iterator[Run]:
        """Yield the runs in order, with those that have not been read yet."""
        waiting = {number for number, _ in list(self._waiting)}
        for number in sorted(self.runs.keys() | waiting):
            run, status = self.runs.get(number), "live" if self.status.get(number) == "live" else "ended"
            if run is None:
                yield Run(number, self.name_of(number), status, "")
            else:
                yield Run(number, run.facts.notes.name or self.name_of(number), status, run.facts.summary)

    # -- columns -------------------------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The numbers of the runs that were read, in order."""
        return sorted(self.runs)

    def series_names(self) -> dict[str, int]:
        """All series, and how many runs have each."""
        runs = list(self.runs.values())
        counts = Counter(id(run.series) for run in runs)  # runs with the same ones share a tuple
        distinct = {id(run.series): run.series for run in runs}
        names: dict[str, int] = {}
        for key, count in counts.items():
            for name in distinct[key]:
                names[name] = names.get(name, 0) + count
        return names

    def results(self, name: str, numbers: Sequence[int]) -> list[float | None]:
        """The last number of a series, of some runs."""
        places: dict[int, int] = {}  # by the identity of a tuple of names, which runs share
        column: list[float | None] = []
        for number in numbers:
            run = self.runs[number]
            place = places.get(id(run.series))
            if place is None:
                place = places[id(run.series)] = run.series.index(name) if name in run.series else -1
            column.append(None if place < 0 else run.numbers[place].item())
        return column

    def config_names(self) -> Iterator[tuple[str, int, bool]]:
        """Yield the names of a config, how many runs have each, and whether they differ."""
        counts: dict[str, int] = {}
        first: dict[str, Any] = {}
        varies: set[str] = set()
        for run in list(self.runs.values()):
            for name, value in run.facts.config.items():
                counts[name] = counts.get(name, 0) + 1
                if first.setdefault(name, value) != value:
                    varies.add(name)
        for name, count in counts.items():
            yield name, count, name in varies

    def varies(self, name: str) -> bool:
        """Whether the runs differ in a series."""
        numbers = np.array([each for each in self.results(name, self.numbers()) if each is not None])
        return numbers.size > 1 and not np.all(numbers == numbers[0])


def relative_name(path: Path, folder: Path) -> str:
    """A run's name in a folder: its path there."""
    text, prefix = str(path), f"{folder}{os.sep}"  # not by pathlib: a list has 10,000 of them
    return text.removeprefix(prefix) if text.startswith(prefix) else text if str(folder) == "." else path.name
