"""The summary of a report: facts, numbers over time, modules, the config."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from torcheer.disk import loose_json
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.studio.connections.messages import NumberSummary, ReportCame
from torcheer.studio.sources.open_source import is_live
from torcheer.studio.sources.pass_source import PassSource
from torcheer.studio.sources.source import Source
from torcheer.terminal import human_bytes, human_count, plural

_MOST_MODULES: Final = 1000
_MOST_CONFIG: Final = 100_000  # characters
_MOST_NUMBERS: Final = 60
_KINDS: Final = {
    "pass": "a recorded pass",
    "recording": "a recording",
    "file": "a model's file",
    "run": "a run",
    "live": "a run",
}
_STATES: Final = {"running": "still running when this was written", "failed": "failed", "lost": "killed, or crashed"}


def summary_of_report(source: Source, path: Path) -> ReportCame:
    """Summarise a source; what is left out, and whether there is a graph, is filled in later."""
    table = _main_table(source.tables)
    numbers = tuple(_numbers(table))[:_MOST_NUMBERS] if table is not None else ()
    return ReportCame(
        tuple(_facts(source, path)), numbers, table.head.x if table is not None else "", _modules(source),
        _config(path), (), False,
    )  # fmt: skip


def _facts(source: Source, path: Path) -> Iterator[tuple[str, str]]:
    yield "Shows", _KINDS.get(source.kind, "nothing")
    if source.kind == "run":
        yield "State", _state(source, path)
    if source.net is not None:
        yield "Network", f"{source.net.name} · {plural(len(source.net.layers), 'layer')}"
    steps = [moment.step for moment in source.moments]
    if len(steps) > 1:
        yield "States", f"{len(steps):,}, of steps {min(steps):,} to {max(steps):,}"
    yield "Alerts", f"{len(source.alerts):,}" if source.alerts else "none"
    yield "Written", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by torcheer{_version()}"


def _state(source: Source, path: Path) -> str:
    status = "running" if is_live(path) else source.state.status
    return " · ".join(filter(None, (_STATES.get(status, ""), source.state.message)))


def _version() -> str:
    try:
        return f" {version('torcheer')}"
    except PackageNotFoundError:
        return ""


def _main_table(tables: Mapping[str, ShownTable]) -> ShownTable | None:
    named = (tables.get(name) for name in ("train_epoch", METRICS, "train_step"))
    return next((table for table in named if table is not None and table.count), None)


def _numbers(table: ShownTable) -> Iterator[NumberSummary]:
    x = list(table.columns[table.head.x]) if table.head.x in table.columns else list(range(table.count))
    for column in table.head.columns:
        if column.type in ("int", "float") and column.name not in (table.head.x, "Epoch", "Step", "Time"):
            cells = [(at, cell) for at, cell in zip(x, table.columns[column.name]) if isinstance(cell, int | float)]
            if cells:
                yield _number(column.name, cells)


def _number(name: str, cells: list[tuple[Any, float]]) -> NumberSummary:
    finite = [(cell, at) for at, cell in cells if math.isfinite(cell)] or [(math.nan, 0)]
    (minimum, minimum_at), (maximum, maximum_at) = min(finite, key=_first), max(finite, key=_first)
    return NumberSummary(
        name, _finite(cells[0][1]), _finite(cells[-1][1]), _finite(minimum), _step(minimum_at), _finite(maximum),
        _step(maximum_at),
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]


def _step(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def _modules(source: Source) -> tuple[tuple[str, ...], ...]:
    """A pass has a row for each module with its numbers; other networks their tree."""
    if isinstance(source, PassSource):
        return _summary_rows(source.path)
    if source.net is None or not source.net.modules:
        return ()
    repeats = [(node, f"×{node.repeats}" if node.repeats > 1 else "") for node in source.net.modules if node.path]
    rows = [(node.path, node.kind, str(node.calls), times) for node, times in repeats]
    return (("Module", "Type", "Calls", "Repeats"), *rows[:_MOST_MODULES])


def _summary_rows(path: Path) -> tuple[tuple[str, ...], ...]:
    from torcheer.archive import load

    history: Any = load(path)
    rows = [
        (
            row.address or "(the model)", row.type, human_count(row.parameters), human_count(row.flops),
            human_bytes(row.bytes), f"×{row.repeats}" if row.repeats > 1 else "",
        )
        for row in [history.summary().total, *history.summary()][:_MOST_MODULES]
    ]  # fmt: skip
    return (("Module", "Type", "Parameters", "FLOPs", "Outputs", "Repeats"), *rows)


def _config(path: Path) -> str:
    try:
        spec = loose_json(path / "spec.json")
        told = {key: value for key, value in spec.items() if key not in ("session_dir", "source")}
        text = json.dumps(told, indent=2, ensure_ascii=False)
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    return (
        text if len(text) <= _MOST_CONFIG else f"{text[:_MOST_CONFIG]}\n… and {len(text) - _MOST_CONFIG:,} characters"
    )
