"""A folder of Lightning's CSVLogger as a run: `metrics.csv`, and the settings in `hparams.yaml`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torcheer.runlog.foreign.foreign_run import LIGHTNING_FILE, ForeignRun
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.table_records import Column, TableHead, TableRows

_COUNTERS: Final = {"step": "Step", "epoch": "Epoch"}
_MOST_SETTINGS: Final = 300


def read_lightning_run(path: Path) -> ForeignRun:
    """Read the log; rows that are not finished are left out."""
    run = ForeignRun(config=read_settings(path / "hparams.yaml"))
    text = (path / LIGHTNING_FILE).read_text("utf-8", "replace")
    rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    names = [_COUNTERS.get(name, name) for name in rows[0]] if rows else []
    whole = [row for row in rows[1:] if len(row) == len(names)]
    if len(whole) < len(rows) - 1:
        run.problems.append(
            f"{len(rows) - 1 - len(whole)} lines of {LIGHTNING_FILE} have other columns, and are left out"
        )
    columns = {name: [_cell(row[place]) for row in whole] for place, name in enumerate(names)}
    if columns:
        described = tuple(_described(name, cells) for name, cells in columns.items())
        head = TableHead(METRICS, "Metrics", "Step" if "Step" in columns else "", "", described)
        run.tables = {METRICS: TableRows(head, columns, len(whole))}
    return run


def _cell(text: str) -> Any:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text or None


def _described(name: str, cells: list[Any]) -> Column:
    if any(isinstance(cell, str) for cell in cells):
        return Column(name, "text", plotted=False)
    is_counter = name in _COUNTERS.values()
    return Column(name, "int" if is_counter else "float", plotted=not is_counter)


def read_settings(file: Path) -> dict[str, Any]:
    """The settings of a run, nested ones by their path; without PyYAML those on a line of their own."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return {}
    return dict(list(_flat("", _parsed(text)))[:_MOST_SETTINGS])


def _parsed(text: str) -> Any:
    try:
        import yaml

        return yaml.safe_load(text)  # objects of Python, which Lightning may write, are refused
    except (ImportError, ValueError, RecursionError):
        return _lines(text)
    except Exception as error:  # YAMLError, of a library that may not be there
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        return _lines(text)


def _lines(text: str) -> dict[str, Any]:
    """The settings that stand as `name: value` on a line."""
    pairs = (line.partition(": ") for line in text.splitlines() if line[:1].strip() and not line.startswith(("#", "-")))
    return {
        name: _cell(value.strip().strip("'\""))
        for name, colon, value in pairs
        if colon and value.strip()[:1] not in "!&*"
    }


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), part)
    elif isinstance(value, list | tuple):
        yield prefix, ", ".join(str(part) for part in value)[:200]
    elif isinstance(value, float) and not math.isfinite(value):
        yield prefix, str(value)
    elif prefix and value is not None:
        yield prefix, value if isinstance(value, bool | int | float) else str(value)[:200]
