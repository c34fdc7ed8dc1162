"""Paths and names that our pages have mentioned: each still imports, or docs/migration/moved.md says where it is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOVED = ROOT / "docs" / "migration" / "moved.md"
PATHS = [line for line in (ROOT / "tests/data/public_paths.txt").read_text().split("\n") if line and line[0] != "#"]


def moved() -> dict[str, str]:
    """Rows of the migration table: a path of before, or all below it, and its path now."""
    text = MOVED.read_text() if MOVED.is_file() else ""
    return dict(re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|", text, re.MULTILINE))


def now(path: str, table: dict[str, str]) -> str:
    """The path by which something is found today: the longest row that it begins with says so."""
    for before in sorted(table, key=len, reverse=True):
        if path == before or path.startswith(before + "."):
            return table[before] + path.removeprefix(before)
    return path


def is_there(path: str) -> bool:
    """Whether a module, or something in one, has this path; a field of a dataclass counts by its annotation."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
            continue
        for name in parts[end:]:
            kinds = value.__mro__ if isinstance(value, type) else ()
            if not hasattr(value, name):
                return any(name in vars(kind).get("__annotations__", {}) for kind in kinds)
            value = getattr(value, name)
        return True
    return False


ROOMS = sorted({".".join(path.split(".")[:2]) for path in PATHS})


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_page_mentioned_is_where_it_was_or_where_the_table_says(room: str) -> None:
    table = moved()
    mentioned = [path for path in PATHS if path == room or path.startswith(room + ".")]
    assert [path for path in mentioned if not is_there(now(path, table))] == []


def test_the_table_of_moved_paths_says_what_moved_and_where_it_is() -> None:
    table = moved()
    assert [path for path in table if is_there(path)] == []
    assert [path for path in table.values() if not is_there(path)] == []


def test_a_path_below_a_row_moves_with_it() -> None:
    table = {"torcheer.old": "torcheer.records", "torcheer.old.Name": "torcheer.samples.Alert"}
    assert now("torcheer.old.Op.index", table) == "torcheer.records.Op.index"
    assert now("torcheer.old.Name", table) == "torcheer.samples.Alert"
    assert now("torcheer.older", table) == "torcheer.older"


def test_a_path_that_is_nowhere_is_noticed() -> None:
    assert not is_there("torcheer.nowhere") and not is_there("torcheer.records.Op.nowhere")
    assert is_there("torcheer.samples.Alert.advice") and is_there("torcheer.archive.format")
