"""Reading what was watched: `open_watch(path)`, while the run goes on, after it has ended, after a kill."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Archive, Entry
from torcheer.errors import ArchiveDamaged, NotAnArchive, UnknownLayer, ValueUnavailable
from torcheer.history.op_table import to_arrow, to_pandas
from torcheer.runlog.watch_log import ACCOUNT, COUNTS, STATISTICS
from torcheer.runlog.watch_rows import Columns, Rows
from torcheer.samples import EDGES, PERCENTILES, Account, Alert, Key
from torcheer.terminal import align, ordinal

Array = NDArray[Any]
_SHOWN = 12  # keys and alerts that are printed


def open_watch(path: str | os.PathLike[str]) -> Watched:
    """What a watch has written to its folder so far.

    A run that is still writing can be read; open it again to see more. Of a damaged log all that can be trusted is
    read, and `problems` says what was lost.
    """
    return Watched(path)


class Watched:
    """A log: `watched["features.3", "output"]` is one key over time; `.steps`, `.keys()`, `.alerts`, `.to_pandas()`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _folder(Path(path))
        self.problems: list[str] = []
        self._archive = archive_in(self.path, self.problems)
        self.sealed = self._archive.sealed  # whether the child has ended well
        self._rows = Rows(self._archive, self.problems)

    @property
    def steps(self) -> Array:
        """The steps of which anything is there."""
        return np.unique(self._rows.steps)

    def keys(self) -> list[Key]:
        """Layer and variable of everything there is, in the order in which they came."""
        return list(self._rows.places)

    @cached_property
    def alerts(self) -> list[Alert]:
        """What looked wrong, in order."""
        found = _alerts(self.path / "alerts.jsonl")
        return [one for opened, one in found if self._rows.holds(opened, one.step, (one.layer, one.variable))]

    @cached_property
    def account(self) -> Account | None:
        """What became of the values, dropped ones by key; None while the watch is open, or where it was killed."""
        found = _account(self.path / ACCOUNT)
        return found[1] if found is not None and found[0] >= self._rows.opened else None

    def __getitem__(self, key: Key | str) -> Series:
        if not isinstance(key, str) and not (isinstance(key, tuple) and len(key) == 2):
            raise UnknownLayer(f"no key {key!r}: ask for a layer, or for a layer and a variable, {_for_example(self)}")
        layer, variable = (key, "") if isinstance(key, str) else key
        found = [one for one in self._rows.places if one[0] == layer and variable in ("", one[1])]
        if len(found) == 1:
            return Series(self, found[0])
        if found:
            kinds = ", ".join(repr(one[1]) for one in found)
            raise UnknownLayer(f"{layer!r} has {kinds}; ask for one of them: watched[{layer!r}, {found[0][1]!r}]")
        raise UnknownLayer(self._unknown(layer, variable))

    def _unknown(self, layer: str, variable: str) -> str:
        kinds = [one[1] for one in self._rows.places if one[0] == layer]
        if kinds:
            return f"no {variable!r} of {layer!r} in {self.path}; there is {', '.join(kinds)}"
        layers = list(dict.fromkeys(one[0] for one in self._rows.places))
        near = get_close_matches(str(layer), layers, 1)
        hint = f" Did you mean {near[0]!r}?" if near else f" It has {_few(layers)}."
        return f"no layer {layer!r} in {self.path}.{hint}"

    def __contains__(self, key: object) -> bool:
        return key in self._rows.places or any(key == layer for layer, _ in self._rows.places)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows.places)

    def __len__(self) -> int:
        return len(self._rows.places)

    def table(self) -> Columns:
        """One row for each value that was seen, as plain columns."""
        return self._rows.table(np.arange(len(self._rows.steps)))

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return to_pandas(self.table())

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table."""
        return to_arrow(self.table())

    def __repr__(self) -> str:
        steps = self.steps
        span = f"steps {steps[0]:,} to {steps[-1]:,}" if len(steps) else "no steps"
        state = "ended" if self.sealed else "still open, or ended by a kill"
        alerts = f"{len(self.alerts):,} alert{'s' * (len(self.alerts) != 1)}"
        keys = f"{len(self):,} key{'s' * (len(self) != 1)}"
        return f"<Watched {self.path}: {span}, {keys}, {alerts}, {state}>"

    def __str__(self) -> str:
        lines = [repr(self)[1:-1], *(f"lost: {problem}" for problem in self.problems[:_SHOWN])]
        if self.account is not None and self.account.missing:
            lines.append(f"of {self.account.offered:,} values {self.account.missing}")
        rows: list[tuple[str, ...]] = [("layer", "variable", "looks", "mean", "std", "norm")]
        rows += [self[key]._line() for key in self.keys()[:_SHOWN]]
        lines += [f"  {line}" for line in align(rows, left=2)] if len(self) else []
        if len(self) > _SHOWN:
            lines.append(f"  … {len(self) - _SHOWN:,} more")
        lines += [f"! {alert}" for alert in self.alerts[:_SHOWN]]
        if len(self.alerts) > _SHOWN:
            lines.append(f"! … {len(self.alerts) - _SHOWN:,} more")
        return "\n".join(lines)


class Series:
    """One key over time: `.steps`, `.mean`, `.std`, `.norm`, … are arrays of one number per look."""

    def __init__(self, watched: Watched, key: Key) -> None:
        self.layer, self.variable = key
        self._watched, self._rows = watched, watched._rows
        self._places = np.array(self._rows.places[key])

    @property
    def steps(self) -> Array:
        """The step of each look."""
        found: Array = self._rows.steps[self._places]
        return found

    def __getattr__(self, name: str) -> Array:
        """A column of the log: minimum, maximum, mean, std, norm, p50, count, zeros, nans, infs, time_secs, …"""
        if name in STATISTICS or name in COUNTS:
            return self._rows.column(name, self._places)
        near = get_close_matches(name, (*STATISTICS, *COUNTS, "steps", "histogram", "values"), 1)
        hint = f" Did you mean {near[0]!r}?" if near else f" It has steps, {', '.join((*STATISTICS, *COUNTS))}."
        raise AttributeError(f"a series has no {name!r}.{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *STATISTICS, *COUNTS})

    @property
    def percentiles(self) -> Array:
        """One row per look, one column for each of `statistics.PERCENTILES`."""
        first = STATISTICS.index(f"p{PERCENTILES[0]}")
        found: Array = self._rows.statistics[self._places, first:]
        return found

    @property
    def edges(self) -> Array:
        """Where the bins of the histograms begin and end; the same for all keys and steps."""
        return np.array(EDGES)

    @cached_property
    def histogram(self) -> Array:
        """One row per look, one column per bin; zeros where none was made."""
        return np.stack([self._rows.histogram(place) for place in self._places])

    @property
    def values(self) -> Mapping[int, Array]:
        """The arrays that were kept, by step; of one too large for the ring every n-th number, as `stride` says."""
        entries = {int(self._rows.steps[place]): entry for place in self._places if (entry := self._rows.kept(place))}
        if not entries:
            raise ValueUnavailable(
                f"no array of {self.layer!r} ({self.variable}) was kept, only its statistics; "
                f"watch with keep=({f'{self.layer}/{self.variable}'!r},)"
            )
        return _Values(self._rows.archive, entries)

    @property
    def alerts(self) -> list[Alert]:
        """What looked wrong with it."""
        name = f"{self.layer} ({self.variable})"
        found = (self.layer, self.variable)
        return [one for one in self._watched.alerts
                if (one.layer, one.variable) == found or name in one.values.get("also", ())]  # fmt: skip

    def table(self) -> Columns:
        """One row per look, as plain columns."""
        return self._rows.table(self._places)

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return to_pandas(self.table())

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table."""
        return to_arrow(self.table())

    def __len__(self) -> int:
        return len(self._places)

    def _line(self) -> tuple[str, ...]:
        last = [short(float(column[-1])) for column in (self.mean, self.std, self.norm)]
        return (self.layer, self.variable, f"{len(self):,}", *last)

    def __repr__(self) -> str:
        steps = self.steps
        _, _, looks, mean, std, norm = self._line()
        span = f"steps {steps[0]:,} to {steps[-1]:,}"
        last = f"last mean {mean}, std {std}, norm {norm}"
        part = f", of every {ordinal(int(self.stride.max()))} number" if self.stride.max() > 1 else ""
        return f"<Series {self.layer} ({self.variable}): {looks} looks, {span}; {last}{part}>"


class _Values(Mapping[int, Array]):
    """Kept arrays by step, read when they are asked for."""

    def __init__(self, archive: Archive, entries: dict[int, Entry]) -> None:
        self._archive, self._entries = archive, entries

    def __getitem__(self, step: int) -> Array:
        if step not in self._entries:
            raise UnknownLayer(f"nothing was kept of step {step}; there is {_few(map(str, self._entries))}")
        return self._archive.array(self._entries[step])

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def archive_in(path: Path, problems: list[str]) -> Archive:
    """The archive of a log; of a damaged one all that can be trusted, with what was lost among the problems."""
    try:
        return Archive(path / "samples")
    except ArchiveDamaged:
        from torcheer.archive.verification import examine

        found = examine(path / "samples")
        problems += found.lost
        return found


def logs_in(path: Path) -> list[Path]:
    """The folders of the logs that a watch, or a training run, has written: one for each model or process."""
    for inside in (path, path / "watch"):
        several = sorted(one for one in inside.glob("*") if (one / "samples").is_dir())
        if found := [inside] if (inside / "samples").is_dir() else several:
            return found
    return []


def _folder(path: Path) -> Path:
    """The folder that has the log: of a training run, the one inside."""
    found = logs_in(path)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotAnArchive(f"{path} holds {len(found)} logs; open one of them: {_few(map(str, found))}")
    if not path.is_dir():
        near = get_close_matches(path.name, [one.name for one in path.parent.glob("*")], 1)
        hint = f" Did you mean {str(path.parent / near[0])!r}?" if near else ""
        raise NotAnArchive(f"there is no folder {path}.{hint}")
    raise NotAnArchive(
        f"{path} holds nothing that was watched: there is no folder 'samples' in it. "
        f"A watch with to={str(path)!r} makes one when its first values arrive"
    )


def _alerts(file: Path) -> Iterator[tuple[float, Alert]]:
    """When its log was opened, and each alert; a line that is not whole is left out."""
    names = {one.name for one in fields(Alert)}
    if not file.is_file():
        return
    for line in file.read_bytes().splitlines():
        try:
            found = json.loads(line)
            yield float(found.get("opened", 0.0)), Alert(**{name: found[name] for name in names & found.keys()})
        except (ValueError, TypeError, AttributeError):
            continue


def _account(file: Path) -> tuple[float, Account] | None:
    """When a watch was closed, and what it had to account for."""
    try:
        found = json.loads(file.read_bytes())
        when, dropped = float(found.pop("time_secs")), {(one[0], one[1]): int(one[2]) for one in found.pop("dropped")}
        return when, Account(dropped=dropped, **found)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None


def short(number: float) -> str:
    """A number in a few characters; a dash where there is none."""
    return "–" if math.isnan(number) else f"{number:.4g}"


def _for_example(watched: Watched) -> str:
    return f"such as watched[{', '.join(map(repr, next(iter(watched), ('features.3', 'output'))))}]"


def _few(names: Any) -> str:
    listed = [repr(name) if not name.lstrip("-").isdigit() else name for name in names]
    return ", ".join(listed[:8]) + (", …" if len(listed) > 8 else "") or "nothing"
