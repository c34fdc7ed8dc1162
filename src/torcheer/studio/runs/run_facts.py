"""One run in brief: its config, its last results, what people say of it. Read once, and again when its files change."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torcheer.archive.format.archive_folder import read_about
from torcheer.control.config_form import form_of
from torcheer.disk import LOCK, lock_holder, loose_json
from torcheer.errors import TorcheerError
from torcheer.runlog.follow.run_end import read_end
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.log_reader import RunLog, is_long
from torcheer.runlog.run_tables import summary_at, summary_of
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.studio.runs.foreign_run import EVENTS, LIGHTNING, read_foreign
from torcheer.studio.runs.run_notes import RunNotes, read_notes
from torcheer.studio.sources.recordings import KIND
from torcheer.terminal import plural

SOCKET: Final = "control.sock"
_TAIL_ROWS: Final = 200  # of a long log: not every column has a cell in the last row
_MOST_CONFIG: Final = 300
_MOST_TEXT: Final = 200
_COUNTERS: Final = frozenset(("Epoch", "Step", "Batch", "Trial", "Run", "Seed"))
_PLAIN: Final = ("train_epoch", METRICS)  # tables whose columns need no prefix
_LEFT_OUT: Final = ("changes", "run", "test_trial", "patterns")
_PARTS: Final = ("log", "metrics", "tests", "checkpoints", "captures", "watch")

Cell = str | int | float | bool


@dataclass(slots=True)
class RunFacts:
    """A run in brief."""

    kind: str = "run"  # "archive", "events", "lightning"
    summary: str = ""
    made_by: str = ""
    created_secs: float = 0.0  # since 1970
    changed_secs: float = 0.0
    config: dict[str, Cell] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)  # the last number of each series
    notes: RunNotes = field(default_factory=RunNotes)
    outcome: str = ""  # "failed", "lost": killed, if no process writes to it
    problem: str = ""  # why there is no more


def read_facts(path: Path, kind: str, check: Callable[[Path], object] | None = None) -> RunFacts:
    """Read a run; one that cannot be read, or that `check` raises for, says why, and raises nothing."""
    facts = RunFacts(kind)
    try:
        if check is not None:
            check(path)
        facts.notes = read_notes(path)
        facts.created_secs, facts.changed_secs = _times(path)
        _READERS.get(kind, _read_run)(path, facts)
    except (TorcheerError, OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        facts.problem = f"unreadable: {str(error).removeprefix(f'{path}: ')}"[:_MOST_TEXT]
        facts.summary = facts.problem[:100]
    return facts


def _read_run(path: Path, facts: RunFacts) -> None:
    facts.config, facts.made_by = config_at(path / "spec.json"), _made_by(path)
    facts.outcome = read_end(path).status.replace("done", "")
    log = RunLog(path)
    metrics = None if log.has_training or is_long(path) else log.last_numbers()
    if metrics:
        facts.results = _plain_results(metrics)
        facts.summary = plural(int(facts.results["Step"]), "step")
        return
    if is_long(path):
        facts.results, facts.summary = last_numbers(log.tail(_TAIL_ROWS)), summary_at(path)
        return
    tables = log.tables()
    facts.results, facts.summary = last_numbers(tables), summary_of(tables)
    facts.problem = next(iter(log.problems), "")[:_MOST_TEXT]


def _plain_results(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """What `last_numbers` says of a run that has logged nothing but metrics."""
    results = {"Step": float(max(cells["Step"] for cells in metrics.values()))}
    for table, cells in metrics.items():
        for name, cell in cells.items():
            if name not in _COUNTERS:
                results[name if table in _PLAIN else f"{table}/{name}"] = cell
    return results


def _read_archive(path: Path, facts: RunFacts) -> None:
    about: dict[str, Any] = read_about(path)
    if about.get("kind") == KIND:
        facts.summary = f"a recording, {about.get('states')} states"
    elif about.get("kind") == "history":
        facts.summary = f"a recorded pass of {about.get('model') or 'a model'}"
    else:
        facts.summary = "captures"


def _read_foreign(path: Path, facts: RunFacts) -> None:
    run = read_foreign(path, facts.kind)
    facts.results, facts.summary = last_numbers(run.tables), summary_of(run.tables)
    facts.config = {name: value for name, value in run.config.items() if isinstance(value, str | int | float | bool)}
    facts.made_by = {EVENTS: "TensorBoard", LIGHTNING: "Lightning"}[facts.kind]
    facts.problem = next(iter(run.problems), "")[:_MOST_TEXT]


_READERS: Final = {"archive": _read_archive, EVENTS: _read_foreign, LIGHTNING: _read_foreign}


# -- numbers -----------------------------------------------------------------------------------------------------------


def series_of(tables: Mapping[str, ShownTable]) -> Iterator[tuple[str, ShownTable, str]]:
    """Yield each series of numbers: its name, its table and its column there."""
    for table_name, table in tables.items():
        if table_name in _LEFT_OUT or not table.count:
            continue
        for column in table.head.columns:
            if column.type in ("int", "float") and column.name not in _COUNTERS and column.name != table.head.x:
                plain = table_name in _PLAIN
                yield (column.name if plain else f"{table_name}/{column.name}"), table, column.name


def last_numbers(tables: Mapping[str, ShownTable]) -> dict[str, float]:
    """The last number of each series, and the last step and epoch."""
    results: dict[str, float] = {}
    for name in ("Epoch", "Step"):
        last = [_last(table.columns[name]) for table in tables.values() if table.count and name in table.columns]
        results |= {name: max(numbers)} if (numbers := [number for number in last if number is not None]) else {}
    for name, table, column in series_of(tables):
        number = _last(table.columns.get(column, ()))
        if number is not None:
            results.setdefault(name, number)
    return results


def _last(cells: Any) -> float | None:
    for place in range(len(cells) - 1, -1, -1):
        cell = cells[place]
        if type(cell) is int or type(cell) is float:
            return float(cell)
    return None


# -- config ------------------------------------------------------------------------------------------------------------


def config_at(file: Path) -> dict[str, Cell]:
    """The config of a run, flattened: "adam.lr" → 0.1."""
    try:
        config = loose_json(file)
    except (OSError, ValueError):
        return {}
    return {each.name: each.value for each in form_of(config)[:_MOST_CONFIG]} if isinstance(config, dict) else {}


def _made_by(path: Path) -> str:
    try:
        return str(loose_json(path / "run.json").get("made_by", ""))[:_MOST_TEXT]
    except (OSError, ValueError, AttributeError):
        return ""


def _times(path: Path) -> tuple[float, float]:
    """When a run began, as far as its oldest file says, and when it was written to last."""
    times = [entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(path)] or [path.stat().st_mtime]
    return min(times), max([*times, path.stat().st_mtime])


# -- files -------------------------------------------------------------------------------------------------------------


def stamp_at(path: str) -> tuple[int, bool] | None:
    """A number that changes with a run's files, and whether a process may be at work there; None without a folder."""
    stats: list[tuple[Any, ...]] = []
    try:
        is_open = _add_stats(path, stats, 0)
    except OSError:
        return None
    return zlib.crc32(repr(sorted(stats)).encode()) | len(stats) << 32, is_open


def _add_stats(folder: str, stats: list[tuple[Any, ...]], depth: int) -> bool:
    is_open = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth == 1 or (depth == 0 and entry.name in _PARTS):
                    is_open |= _add_stats(entry.path, stats, depth + 1)
            elif entry.name in (SOCKET, LOCK):
                is_open = True
            elif entry.is_file():
                status = entry.stat()
                stats.append((depth, entry.name, status.st_mtime_ns, status.st_size))
    return is_open


def is_locked(path: Path) -> bool:
    """True while a process writes to a run: it trains there, or one of its logs is open."""
    logs = [entry for entry in (path / "log").glob("*") if entry.is_dir()]
    return any(lock_holder(folder) for folder in (path, path / "captures", *logs))
