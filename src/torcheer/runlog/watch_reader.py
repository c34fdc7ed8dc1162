"""Reads a watch's log, `open_watch(path)`: of a running, finished or killed run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import NotAnArchive, UnknownLayer, ValueUnavailable
from torcheer.history.op_table import to_arrow, to_pandas
from torcheer.public_names import PublicClass
from torcheer.ranks import split_rank
from torcheer.runlog.follow.run_end import read_end
from torcheer.runlog.log_frames import COUNTS, STATISTICS
from torcheer.runlog.log_reader import WriterLog, refuse_earlier
from torcheer.runlog.log_stream import writers_in
from torcheer.runlog.log_writer import log_folder
from torcheer.runlog.media.logged_samples import LoggedSamples
from torcheer.runlog.ranks.rank_board import RankBoard, merge_alerts
from torcheer.runlog.ranks.rank_facts import name_ranks
from torcheer.runlog.ranks.rank_values import RankValues
from torcheer.runlog.volume.log_chunks import is_chunk
from torcheer.runlog.watched_values import Columns, WatchedValues
from torcheer.samples import Account, Alert, Key
from torcheer.terminal import did_you_mean, first_names, format_table, human_number, ordinal, plural
from torcheer.terminal.streams import encodable
from torcheer.vocabulary.array_statistics import EDGES, PERCENTILES, StatisticColumns

if TYPE_CHECKING:
    import pandas

Array = NDArray[Any]
WRITER = "watch"
_SHOWN = 12  # keys and alerts that are printed
_COUNTED = ("offered", "handled", "lost", "damaged", "restarts", "written")  # of an account


def open_watch(path: str | os.PathLike[str]) -> Watched:
    """Open the log that a watch has written to its folder so far.

    A run that is still writing can be read; open it again to see more. Of a damaged log everything that passes its
    checksums is read, and `problems` lists what was lost.

    - `path`: the folder of the log, or of a run.
    """
    return Watched(path)


class Watched(metaclass=PublicClass):
    """A log: `watched["features.3", "output"]` is one key over time.

    `.steps`, `.keys()`, `.alerts`, `.to_pandas()`.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int | None = None) -> None:
        """`rank`: of several processes only this one's part; by default all that there are, merged."""
        self.path = _folder(Path(path))
        self._logs = open_logs(self.path) if rank is None else {rank: open_logs(self.path)[rank]}
        facts = {number: log.rank_facts(number) for number, log in self._logs.items()}
        self.rank_count = max(fact.of for fact in facts.values())  # how many processes there were, logged or not
        if len(self._logs) == 1:
            (log,) = self._logs.values()
            self._rows = log.values
        else:
            self._rows = RankValues({number: (facts[number], log.values) for number, log in self._logs.items()})
        self.problems = [  # sentences about what was lost
            f"rank {number}: {problem}" if number else problem
            for number, log in self._logs.items()
            for problem in log.problems
        ]
        if 1 < len(self._logs) < self.rank_count:
            self.problems.append(f"of {self.rank_count} ranks {name_ranks(sorted(self._logs))} have a log here")
        self.sealed = all(log.sealed for log in self._logs.values())  # whether the child process ended cleanly

    @cached_property
    def ranks(self) -> dict[int, Watched]:
        """Of a run of several processes, what each of them has logged for itself: `watched.ranks[1]`."""
        return {rank: Watched(self.path, rank) for rank in self._logs}

    @cached_property
    def board(self) -> RankBoard:
        """The ranks compared: `watched.board.rows` has step times, stragglers, and whose weights differ."""
        board = RankBoard()
        for rank, log in self._logs.items() if self.rank_count > 1 else ():
            log.compare_on(board, rank)
        return board

    @property
    def steps(self) -> Array:
        """The steps that have at least one value."""
        return np.unique(self._rows.steps)

    def keys(self) -> list[Key]:
        """Every logged (layer, variable), in the order of first appearance."""
        return list(self._rows.places)

    @property
    def alerts(self) -> list[Alert]:
        """The alerts that the rules raised, in order."""
        alerts = merge_alerts([(rank, alert) for rank, log in self._logs.items() for alert in log.alerts])
        return sorted([*alerts, *self.board.alerts()], key=lambda alert: alert.step) if len(self._logs) > 1 else alerts

    @property
    def account(self) -> Account | None:
        """How many values were written and dropped, by key.

        None while the watch is open, or if it was killed.
        """
        return add_accounts([log.account for log in self._logs.values()])

    def samples(self, kind: str = "", name: str = "") -> LoggedSamples:
        """Logged images, sounds, texts, tables and confusion matrices, by step: `watched.samples("image")[-1]`."""
        samples = [sample for log in self._logs.values() for sample in log.samples]
        return LoggedSamples(sorted(samples, key=lambda sample: sample.step)).of(kind, name)

    def __getitem__(self, key: Key | str) -> Series:
        if not isinstance(key, str) and not (isinstance(key, tuple) and len(key) == 2):
            raise UnknownLayer(f"no key {key!r}: ask for a layer, or for a layer and a variable, {_for_example(self)}")
        layer, variable = (key, "") if isinstance(key, str) else key
        matches = [place for place in self._rows.places if place[0] == layer and variable in ("", place[1])]
        if len(matches) == 1:
            return Series(self, matches[0])
        if matches:
            kinds = ", ".join(repr(variable) for _, variable in matches)
            raise UnknownLayer(f"{layer!r} has {kinds}; ask for one of them: watched[{layer!r}, {matches[0][1]!r}]")
        raise UnknownLayer(self._unknown(layer, variable))

    def _ipython_key_completions_(self) -> list[Key]:
        return self.keys()

    def _unknown(self, layer: str, variable: str) -> str:
        kinds = [kind for name, kind in self._rows.places if name == layer]
        if kinds:
            return f"no {variable!r} of {layer!r} in {self.path}; there is {', '.join(kinds)}"
        layers = list(dict.fromkeys(name for name, _ in self._rows.places))
        hint = did_you_mean(layer, layers) or f" It has {first_names(map(repr, layers)) or 'nothing'}."
        return f"no layer {layer!r} in {self.path}.{hint}"

    def __contains__(self, key: object) -> bool:
        return key in self._rows.places or any(key == layer for layer, _ in self._rows.places)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows.places)

    def __len__(self) -> int:
        return len(self._rows.places)

    def table(self) -> Columns:
        """One row for each logged value, as plain columns."""
        return self._rows.table(np.arange(len(self._rows.steps)))

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame: one row per logged value.

        | column | |
        |---|---|
        | `step`, `layer`, `variable` | which value: "features.0", "output" |
        | `time_secs` | when it was sampled, in seconds since 1970 |
        | `minimum`, `maximum`, `mean`, `std`, `norm`, `rms` | of its finite numbers |
        | `p1`, `p5`, `p25`, `p50`, `p75`, `p95`, `p99` | percentiles |
        | `item` | the item of the batch, or -1 for all |
        | `seen` | how often it was sampled before, dropped samples included |
        | `count`, `zeros`, `nans`, `infs` | how many numbers; how many are zero, NaN, infinite |
        | `stride` | statistics are those of every n-th number; 1: of all |
        | `finite` | whether all numbers are finite, as far as they were checked |
        | `type`, `shape`, `device`, `message` | of the tensor; the text that was sent with it |
        """
        return to_pandas(self.table())

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table."""
        return to_arrow(self.table())

    def __repr__(self) -> str:
        steps = self.steps
        span = f"steps {steps[0]:,} to {steps[-1]:,}" if len(steps) else "no steps"
        end = read_end(self.path)
        state = "ended" if self.sealed else "still open, or ended by a kill"
        state = f"failed: {end.why}" if end.status == "failed" else state
        alerts = plural(len(self.alerts), "alert")
        keys = plural(len(self), "key")
        ranks = f", {name_ranks(sorted(self._logs))} of {self.rank_count}" if self.rank_count > 1 else ""
        return f"<Watched {self.path}: {span}, {keys}, {alerts}, {state}{ranks}>"

    def __str__(self) -> str:
        lines = [repr(self)[1:-1], *(f"lost: {problem}" for problem in self.problems[:_SHOWN])]
        if self.account is not None and self.account.missing:
            lines.append(f"of {self.account.offered:,} values {self.account.missing}")
        rows: list[tuple[str, ...]] = [("layer", "variable", "looks", "mean", "std", "norm")]
        rows += [self[key]._line() for key in self.keys()[:_SHOWN]]
        lines += [f"  {line}" for line in format_table(rows, left=2)] if len(self) else []
        if len(self) > _SHOWN:
            lines.append(f"  … {len(self) - _SHOWN:,} more")
        if samples := self.samples().lines():
            lines += ["logged", *(f"  {line}" for line in format_table(samples[:_SHOWN], left=3))]
        lines += [f"! {alert}" for alert in self.alerts[:_SHOWN]]
        if len(self.alerts) > _SHOWN:
            lines.append(f"! … {len(self.alerts) - _SHOWN:,} more")
        return encodable("\n".join(lines))


class Series(StatisticColumns):
    """One key over time: `.steps`, `.mean`, `.std`, `.norm`, … have one number per sample."""

    # columns of the log, through `__getattr__`, beside those of every statistic
    time_secs: Array
    p1: Array
    p5: Array
    p25: Array
    p50: Array
    p75: Array
    p95: Array
    p99: Array
    item: Array
    seen: Array
    stride: Array
    finite: Array
    binned: Array

    def __init__(self, watched: Watched, key: Key) -> None:
        self.layer, self.variable = key
        self._watched, self._rows = watched, watched._rows
        self._places = np.array(self._rows.places[key])

    @property
    def steps(self) -> Array:
        """The step of each sample."""
        steps: Array = self._rows.steps[self._places]
        return steps

    if not TYPE_CHECKING:  # to type checkers any other name is a typing error

        def __getattr__(self, name: str) -> Array:
            """A column of the log: minimum, mean, std, norm, p50, count, zeros, nans, time_secs, …"""
            if name in STATISTICS or name in COUNTS:
                return self._rows.column(name, self._places)
            hint = did_you_mean(name, (*STATISTICS, *COUNTS, "steps", "histogram", "values"))
            hint = hint or f" It has steps, {', '.join((*STATISTICS, *COUNTS))}."
            raise AttributeError(f"a series has no {name!r}.{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *STATISTICS, *COUNTS})

    @property
    def percentiles(self) -> Array:
        """One row per sample, one column for each of `samples.PERCENTILES`."""
        return np.stack([self._rows.column(f"p{percent}", self._places) for percent in PERCENTILES], axis=1)

    @property
    def edges(self) -> Array:
        """The edges of the histograms' bins; the same for all keys and steps."""
        return np.array(EDGES)

    @cached_property
    def histogram(self) -> Array:
        """One row per sample, one column per bin; zeros where there is no histogram."""
        return np.stack([self._rows.histogram(place) for place in self._places])

    @property
    def values(self) -> Mapping[int, Array]:
        """The kept arrays by step; one too large for the ring is subsampled by its `stride`."""
        kept = {int(self._rows.steps[place]): int(place) for place in self._places if self._rows.keeps(place)}
        if not kept:
            raise ValueUnavailable(
                f"no array of {self.layer!r} ({self.variable}) was kept, only its statistics; "
                f"watch with keep=({f'{self.layer}/{self.variable}'!r},)"
            )
        return _KeptArrays(self._rows, kept)

    @property
    def alerts(self) -> list[Alert]:
        """The alerts that concern this key."""
        name = f"{self.layer} ({self.variable})"
        key = (self.layer, self.variable)
        return [alert for alert in self._watched.alerts
                if (alert.layer, alert.variable) == key or name in alert.values.get("also", ())]  # fmt: skip

    def table(self) -> Columns:
        """One row per sample, as plain columns."""
        return self._rows.table(self._places)

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame: one row per sample, with the columns of `Watched.to_pandas`."""
        return to_pandas(self.table())

    def to_arrow(self) -> Any:
        """The table as a pyarrow Table."""
        return to_arrow(self.table())

    def __len__(self) -> int:
        return len(self._places)

    def _line(self) -> tuple[str, ...]:
        last = [human_number(float(column[-1])) for column in (self.mean, self.std, self.norm)]
        return (self.layer, self.variable, f"{len(self):,}", *last)

    def __repr__(self) -> str:
        steps = self.steps
        _, _, samples, mean, std, norm = self._line()
        span = f"steps {steps[0]:,} to {steps[-1]:,}"
        last = f"last mean {mean}, std {std}, norm {norm}"
        part = f", of every {ordinal(int(self.stride.max()))} number" if self.stride.max() > 1 else ""
        return f"<Series {self.layer} ({self.variable}): {samples} looks, {span}; {last}{part}>"


class _KeptArrays(Mapping[int, Array]):
    """Kept arrays by step, read lazily."""

    def __init__(self, values: WatchedValues, places: dict[int, int]) -> None:
        self._values, self._places = values, places

    def __getitem__(self, step: int) -> Array:
        if step not in self._places:
            raise UnknownLayer(f"nothing was kept of step {step}; there is {first_names(self._places) or 'nothing'}")
        return self._values.kept(self._places[step])

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def open_logs(home: Path) -> dict[int, WriterLog]:
    """Open the log of a watch, by rank: `home` is the folder that it writes to, or its part of a run's log."""
    run, writer = (home.parent.parent, home.name) if _is_writer(home) else (home, WRITER)
    places = {
        place.rank: place for place in writers_in(run) if writer in (place.path.name, split_rank(place.path.name)[0])
    }
    if not places:
        return {0: WriterLog(log_folder(home, WRITER))}
    return {rank: WriterLog(places[rank].path) for rank in sorted(places)}


def has_watch(home: Path) -> bool:
    """Whether a watch has written to a folder."""
    return log_folder(home, WRITER).is_dir() or any(
        split_rank(log.name)[0] == WRITER for log in (home / "log").glob(f"{WRITER}@*")
    )


def add_accounts(accounts: Sequence[Account | None]) -> Account | None:
    """What became of the values of all ranks; None while a watch is open, or if one was killed."""
    known = [account for account in accounts if account is not None]
    if len(known) < len(accounts) or len(known) == 1:
        return known[0] if len(accounts) == 1 and known else None
    dropped = Counter[Key]()
    for account in known:
        dropped.update(account.dropped)
    counts = {name: sum(getattr(account, name) or 0 for account in known) for name in _COUNTED}
    return Account(**counts, dropped=dict(dropped))


def _is_writer(path: Path) -> bool:
    """Whether a folder is a watch's part of a run's log."""
    is_own = path.name.startswith(WRITER) and not is_chunk(path)
    return is_own and path.parent.name == "log" and (path / "archive.json").is_file()


def logs_in(path: Path) -> list[Path]:
    """The folders in a watch or a training run that a watch wrote to: one for each model or process."""
    if _is_writer(path) or has_watch(path):
        return [path]
    if logs := sorted(filter(_is_writer, (path / "log").glob(f"{WRITER}-*"))):
        return list({split_rank(log.name)[0]: log for log in reversed(logs)}.values())[::-1]
    refuse_earlier(path)
    return sorted(filter(has_watch, path.glob("*"))) or sorted(filter(has_watch, (path / "watch").glob("*")))


def name_of(log: Path) -> str:
    """A short name of one of `logs_in`: its model, where there are several."""
    return split_rank(log.name)[0].removeprefix(f"{WRITER}-")


def _folder(path: Path) -> Path:
    """The folder of the log: in a training run, the one inside."""
    folders = logs_in(path)
    if len(folders) == 1:
        return folders[0]
    if folders:
        names = first_names(repr(str(folder)) for folder in folders)
        raise NotAnArchive(f"{path} holds {len(folders)} logs; open one of them: {names}")
    if not path.is_dir():
        siblings = [sibling.name for sibling in path.parent.glob("*")]
        raise NotAnArchive(f"there is no folder {path}.{did_you_mean(path.name, siblings)}")
    raise NotAnArchive(
        f"{path} holds nothing that was watched: there is no folder 'log/{WRITER}' in it. "
        f"A watch with to={str(path)!r} makes one when its first values arrive"
    )


def _for_example(watched: Watched) -> str:
    return f"such as watched[{', '.join(map(repr, next(iter(watched), ('features.3', 'output'))))}]"
