"""Checks what a frame of a log holds, once for all readers: behind this door every part is as `log_frames` says.

The checksums of a frame say that it is what was written, not who wrote it: a log may come from another version, or
from somebody who writes checksums that are right.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, TypeGuard

from torcheer.runlog.earlier.old_watch import Frame
from torcheer.runlog.log_frames import METRICS, is_cell
from torcheer.runlog.table_cells import MOST_NUMBERS

_PLAIN: Final = frozenset((int, float, bool, str, type(None)))  # types of cells that hold nothing else
_NUMBERS: Final[frozenset[type]] = frozenset((int, float, bool, type(None)))
_ANY: Final[frozenset[type]] = frozenset()
_MOST: Final = 2**63  # of whole numbers
_MOST_RANKS: Final = 1_000_000


def is_understood(frame: Frame, report: Callable[[str], None]) -> bool:
    """Whether a frame is as this version writes it; reported if not."""
    about, step = frame["about"], frame["step"]
    try:
        known = all([_PARTS[name](part) for name, part in about.items() if name in _PARTS])
        if known and (step is not None or "values" not in about) and (step is None or -_MOST < step < _MOST):
            return True
    except RecursionError:  # nested a thousand deep
        pass
    report(f"step {step}: what it holds is of another version of torcheer")
    return False


def is_table(columns: Any, types: frozenset[type] = _ANY) -> bool:
    """Whether columns are as a table's in a frame are; with `types`, cells are of these or marked numbers."""
    if not isinstance(columns, dict) or not isinstance(columns.get("cells"), dict):
        return False
    steps, times, cells = columns.get("step"), columns.get("time"), columns["cells"].values()
    if not _are_whole(steps) or not all(isinstance(column, list) and len(column) == len(steps) for column in cells):
        return False
    is_timed = isinstance(times, list) and len(times) == len(steps) and _are_numbers(times)
    return is_timed and all(_is_column(column, types) for column in cells)


def _is_column(cells: list[Any], types: frozenset[type]) -> bool:
    found = set(map(type, cells))
    if int in found and not all(-_MOST < cell < _MOST for cell in cells if type(cell) is int):
        return False
    if types:
        return all(type(cell) in types or (type(cell) is dict and is_cell(cell, depth=0)) for cell in cells)
    return found <= _PLAIN or all(is_cell(cell) for cell in cells if type(cell) not in _PLAIN)


def _are_whole(numbers: Any) -> TypeGuard[list[int]]:
    if not isinstance(numbers, list) or not {int}.issuperset(map(type, numbers)):
        return False
    return not numbers or (-_MOST < min(numbers) and max(numbers) < _MOST)


def _are_numbers(numbers: list[Any]) -> bool:
    return all(type(number) is float or (type(number) is int and -_MOST < number < _MOST) for number in numbers)


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, list) and {str}.issuperset(map(type, texts))


def _are_tables(tables: Any) -> bool:
    return isinstance(tables, dict) and all(
        is_table(columns, _NUMBERS if name == METRICS else _ANY) for name, columns in tables.items()
    )


def _are_named(names: Any) -> bool:
    """Layer and variable of each value, and more."""
    return isinstance(names, list) and all(
        isinstance(name, list) and len(name) >= 2 and _are_texts(name[:2]) and name[1] for name in names
    )


def are_described(names: list[Any]) -> bool:
    """Whether values have layer, variable, type and shape; optionally device and message."""
    return all(4 <= len(name) <= 6 and _are_texts(name[:3] + name[4:]) and _are_whole(name[3]) for name in names)


def _are_hashes(hashes: Any) -> bool:
    return isinstance(hashes, list) and {int, type(None)}.issuperset(map(type, hashes))


def _are_alerts(alerts: Any) -> bool:
    return isinstance(alerts, list) and all(isinstance(alert, dict) and is_cell(alert) for alert in alerts)


def _are_heads(heads: Any) -> bool:
    return isinstance(heads, dict) and all(map(_is_head, heads.values()))


def _is_head(head: Any) -> bool:
    """A table's title and axes, and further facts: its columns, and by stage those that an evaluation gives."""
    if not isinstance(head, dict) or not _are_texts([head.get(name, "") for name in ("title", "x", "legend")]):
        return False
    tested, columns = head.get("tested", {}), head.get("columns", [])
    is_tested = isinstance(tested, dict) and all(map(_are_texts, tested.values()))
    return is_tested and isinstance(columns, list) and all(map(_is_column_head, columns))


def _is_column_head(column: Any) -> bool:
    if not isinstance(column, dict) or type(column.get("name")) is not str:
        return False
    texts, ends = [column.get(name, "") for name in ("type", "error")], column.get("fixed")
    return (
        _are_texts(texts) and type(column.get("plotted", True)) is bool and _is_shape(column.get("shape", []))
        and (ends is None or _is_numbers_list(ends, 2)) and _is_numbers_list(column.get("edges", []))
    )  # fmt: skip


def _is_shape(shape: Any) -> bool:
    return _are_whole(shape) and min(shape, default=0) >= 0 and prod(shape) <= MOST_NUMBERS


def _is_numbers_list(numbers: Any, count: int | None = None) -> bool:
    if not isinstance(numbers, list) or (count is not None and len(numbers) != count):
        return False
    return _is_column(numbers, frozenset((int, float)))


def _is_cut(cut: Any) -> bool:
    return isinstance(cut, dict) and _are_whole([*cut.values()])


def _is_rank(record: Any) -> bool:
    return isinstance(record, dict) and _are_whole([record.get("of", 1)]) and record.get("of", 1) <= _MOST_RANKS


def _is_end(record: Any) -> bool:
    return isinstance(record, dict) and _are_texts([record.get(name, "") for name in ("status", "why")])


def _of(kind: type) -> Callable[[Any], bool]:
    return lambda part: isinstance(part, kind)


def _is_number(part: Any) -> bool:
    return _are_numbers([part])


_PARTS: Final[dict[str, Callable[[Any], bool]]] = {
    "opened": _is_number, "cut": _is_cut, "rows": _are_tables, "cleared": _are_texts, "heads": _are_heads,
    "values": _are_named, "hashes": _are_hashes, "alerts": _are_alerts, "samples": _of(list), "network": _of(dict),
    "account": _of(dict), "rank": _is_rank, "ended": _is_end, "rules": _of(list),
}  # fmt: skip
