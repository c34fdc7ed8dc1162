"""The list of runs as a table: which columns there are, and the cells of those that a page shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from torcheer.errors import BadArgument
from torcheer.studio.runs.index_file import IndexedRun
from torcheer.studio.runs.run_index import RunIndex
from torcheer.terminal import did_you_mean

_FACTS: Final[dict[str, Callable[[IndexedRun], Any]]] = {
    "Tags": lambda run: " ".join(run.facts.notes.tags),
    "Problem": lambda run: run.facts.problem,
    "Summary": lambda run: run.facts.summary,
    "Note": lambda run: run.facts.notes.note[:500],
    "Kind": lambda run: run.facts.kind,
    "Made by": lambda run: run.facts.made_by,
    "Began": lambda run: run.facts.created_secs or None,
    "Changed": lambda run: run.facts.changed_secs or None,
}
_FIXED: Final = ("Name", "Status", "Folder")
_TIMES: Final = ("Began", "Changed")
_CONFIG, _RESULT = "config", "result"


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A column that the list may have."""

    name: str
    group: str  # "run", "config", "result"
    type: str  # "text", "float", "time"
    count: int  # of the runs that have it
    varies: bool


def list_columns(index: RunIndex) -> list[RunColumn]:
    """All columns: what is known of every run, their configs, the last number of each series."""
    runs, series = list(index.runs.values()), index.series_names()
    differing = {name: len({read(run) for run in runs}) > 1 for name, read in _FACTS.items()}
    differing |= {
        "Name": True,
        "Status": len({index.status_of(number) for number in index.numbers()}) > 1,
        "Folder": True,
        "Problem": any(run.facts.problem for run in runs),
    }
    types = {name: "time" if name in _TIMES else "text" for name in differing}
    columns = [RunColumn(name, "run", types[name], len(runs), differing[name]) for name in (*_FIXED, *_FACTS)]
    known = {column.name for column in columns}
    for name, count, varies in index.config_names():
        shown = config_column(name, known | series.keys())
        columns.append(RunColumn(shown, _CONFIG, "text", count, varies))
    varying = _varying_series(index)
    return [*columns, *(RunColumn(name, _RESULT, "float", count, name in varying) for name, count in series.items())]


def config_column(name: str, taken: set[str]) -> str:
    """The name of a config's column; a result of the same name keeps it."""
    return f"config.{name}" if name in taken else name


def list_cells(index: RunIndex, names: Sequence[str]) -> dict[str, Any]:
    """The cells of these columns, for all runs that were read: {"ids": …, "columns": {name: cells}}."""
    numbers = index.numbers()
    runs = [index.runs[number] for number in numbers]
    series = index.series_names()
    fixed: dict[str, Callable[[], list[Any]]] = {
        "Name": lambda: [run.facts.notes.name or index.name_of(number) for number, run in zip(numbers, runs)],
        "Folder": lambda: [index.name_of(number) for number in numbers],
        "Status": lambda: [index.status_of(number) for number in numbers],
    }
    columns: dict[str, list[Any]] = {}
    for name in names:
        if name in fixed:
            columns[name] = fixed[name]()
        elif name in _FACTS:
            columns[name] = [_FACTS[name](run) for run in runs]
        elif name in series:
            columns[name] = index.results(name, numbers)
        else:
            columns[name] = _config_cells(runs, name)
    return {"ids": numbers, "columns": columns, "revision": index.revision}


def _config_cells(runs: Sequence[IndexedRun], name: str) -> list[Any]:
    own = name.removeprefix("config.")
    return [run.facts.config.get(name, run.facts.config.get(own)) for run in runs]


def _varying_series(index: RunIndex) -> set[str]:
    """The series in which runs differ."""
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    groups: dict[int, list[IndexedRun]] = {}  # by the identity of a tuple of names, which runs share
    for run in list(index.runs.values()):
        groups.setdefault(id(run.series), []).append(run)
    for runs in groups.values():
        low, high = runs[0].numbers.copy(), runs[0].numbers.copy()
        for run in runs:
            np.fmin(low, run.numbers, low)
            np.fmax(high, run.numbers, high)
        for name, least, most in zip(runs[0].series, low.tolist(), high.tolist()):
            lows[name], highs[name] = min(lows.get(name, least), least), max(highs.get(name, most), most)
    return {name for name in lows if lows[name] != highs[name]}


def run_details(index: RunIndex, number: int) -> dict[str, Any]:
    """All that the index knows of a run, for its panel and for differences between runs."""
    run = indexed_run(index, number)
    facts = run.facts
    return {
        "id": number, "folder": index.name_of(number), "kind": facts.kind, "status": index.status_of(number),
        "summary": facts.summary, "made_by": facts.made_by, "began": facts.created_secs, "changed": facts.changed_secs,
        "problem": facts.problem, "name": facts.notes.name, "tags": list(facts.notes.tags), "note": facts.notes.note,
        "config": facts.config, "results": dict(zip(run.series, run.numbers.tolist())),
    }  # fmt: skip


def indexed_run(index: RunIndex, number: int) -> IndexedRun:
    """A run by its number."""
    run = index.runs.get(number)
    if run is None:
        raise BadArgument(f"there is no run {number} in the list of {len(index.runs)}; it may have been moved away")
    return run


def check_series(index: RunIndex, names: Sequence[str]) -> None:
    """Refuse series that no run has."""
    known = index.series_names()
    for name in names:
        if name not in known:
            raise BadArgument(f"no run has a series {name[:200]!r} among {len(known)}.{did_you_mean(name, known)}")
