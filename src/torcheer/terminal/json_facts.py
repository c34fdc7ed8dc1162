"""Facts for programs: what `torcheer COMMAND --json` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

JSON_HELP = "print the result as one JSON document; text goes to stderr"


def add_json(parser: Any) -> None:
    """Add the option that `torcheer.cli` reads before the command does."""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


_told: list[tuple[dict[str, Any], Callable[[dict[str, Any]], object]]] = []  # of the command that runs, if any


@contextmanager
def facts_told(announce: Callable[[dict[str, Any]], object]) -> Iterator[dict[str, Any]]:
    """Yield what is told while the body runs; `announce` is called with what cannot wait until its end."""
    facts: dict[str, Any] = {}
    _told.append((facts, announce))
    try:
        yield facts
    finally:
        _told.pop()


def tell(**facts: Any) -> None:
    """Add facts to the document of the command that runs; nothing happens where no document is wanted."""
    if _told:
        _told[-1][0].update(facts)


def tell_item(key: str, value: Any) -> None:
    """Append to a list of the document of the command that runs."""
    if _told:
        _told[-1][0].setdefault(key, []).append(value)


def tell_now(**facts: Any) -> None:
    """Announce facts at once, in a document of their own: the command goes on for long."""
    if _told:
        _told[-1][1](facts)


def plain_data(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as lists, what is not finite as null, what is unknown as its text."""
    if isinstance(value, dict):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(item) for item in value]
    if hasattr(value, "tolist"):
        return plain_data(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | bool | int | float | None) else str(value)
