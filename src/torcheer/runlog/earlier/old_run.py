"""Reads what training wrote before it had a log: `metrics/*.csv`, `tests/*.jsonl`, `earlier/*/result.json`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torcheer.runlog.log_frames import EPOCHS, STEPS
from torcheer.runlog.log_openings import Row
from torcheer.runlog.table_cells import cell_of

_PATTERNS: Final = ("metrics/*.csv", "tests/*.jsonl", "earlier/*/result.json")


def old_files(run: Path) -> list[Path]:
    """The files that hold an old run's rows."""
    return [path for pattern in _PATTERNS for path in run.glob(pattern)]


def old_tables(run: Path) -> dict[str, list[Row]]:
    """The rows of an old run, by the names that they have in a log."""
    tests = {name: _tests(run / "tests" / f"{name}.jsonl") for name in ("test_trial", "test_epoch")}
    epochs = [row for row in tests["test_epoch"] if type(row.cells.get("Epoch")) is int]
    steps = {row.cells["Epoch"]: row.step for row in epochs if not row.cells.get("Batch")}
    changes = [Row(row.pop("step"), 0.0, {"Epoch": row.pop("epoch"), **row}) for row in _counted(run, "changes")]
    runs = [Row(0, 0.0, row) for row in _runs(run)]
    tables = {**_epochs(run, steps), **_steps(run), **tests, "run": runs, "changes": changes}
    return {name: rows for name, rows in tables.items() if rows}


def _epochs(run: Path, steps: Mapping[Any, int]) -> dict[str, list[Row]]:
    files = [path for path in (run / "metrics").glob("*.csv") if path.stem.isdecimal()]
    return {
        f"{EPOCHS}{int(path.stem)}": [Row(steps.get(row.get("epoch"), 0), 0.0, row) for row in _read(path)]
        for path in sorted(files, key=lambda path: int(path.stem))
    }


def _steps(run: Path) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in _counted(run, "steps"):
        cells = {"epoch": row.get("epoch"), "loss": row.get("loss")}
        tables.setdefault(f"{STEPS}{row.get('pipeline')}", []).append(Row(row["step"], 0.0, cells))
    return tables


def _counted(run: Path, name: str) -> list[dict[str, Any]]:
    rows = _read(run / "metrics" / f"{name}.csv")
    return [row for row in rows if type(row.get("step")) is int and type(row.get("epoch")) is int]


def _tests(path: Path) -> list[Row]:
    renamed = ({"Batch" if name == "Trial" else name: cell for name, cell in row.items()} for row in _json_lines(path))
    rows = [row for row in renamed if type(row.get("Step", 0)) is int]
    return [Row(row.pop("Step", 0), 0.0, row) for row in rows]


def _runs(run: Path) -> list[dict[str, Any]]:
    """The results of the archived runs and of the last one."""
    rows = list(_json_lines(run / "tests" / "run.jsonl"))
    for path in (run / "earlier").glob("*/result.json"):
        try:
            rows.append(result_row(json.loads(path.read_bytes())))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # edited by hand
            continue
    return sorted((row for row in rows if isinstance(row.get("Run"), int)), key=lambda row: row["Run"])


def result_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's result as a row of the table of runs."""
    row = {key.capitalize(): cell_of(value) for key, value in result.items() if key != "values"}
    return row | {str(key): cell_of(value) for key, value in dict(result["values"]).items()}


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON Lines file; damaged or truncated lines are skipped."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield {name: cell_of(value) for name, value in row.items()}


def _read(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a CSV; an incomplete or damaged line is skipped."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = text[: text.rfind("\n") + 1].splitlines()
    try:
        rows = list(csv.reader(lines))
    except csv.Error:
        return []
    names = rows[0] if rows else []
    return [{name: _cell(cell) for name, cell in zip(names, row)} for row in rows[1:] if len(row) == len(names)]


def _cell(text: str) -> Any:
    """Parse a cell: an integer, a float, or text; None if empty."""
    try:
        return cell_of(int(text))
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text or None
