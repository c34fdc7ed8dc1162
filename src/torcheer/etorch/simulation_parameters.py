"""The parameters of a simulation: named values with a type and limits, that code and pages may change."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torcheer.control.control_records import Parameter
from torcheer.errors import BadArgument

Change = Callable[[Any], Any]


class Parameters(Mapping[str, Any]):
    """Values by name; setting one checks it and tells who asked to know."""

    def __init__(self) -> None:
        self._lines: dict[str, Parameter] = {}
        self._changes: dict[str, Change | None] = {}

    def add(self, name: str, value: Any, *, change: Change | None = None, **about: Any) -> None:
        """A new line; `about` are fields of `host.records.Parameter`. `change` is called with every new value."""
        if name in self._lines:
            raise BadArgument(f"there is a parameter {name!r} already")
        kind = about.pop("kind", "") or ("choice" if about.get("choices") else _kind(value, name))
        self._lines[name] = Parameter(name, value, kind, **{"editable": True, **about})
        self._changes[name] = change
        self._lines[name] = replace(self._lines[name], value=self._checked(name, value))

    def __getitem__(self, name: str) -> Any:
        return self._line(name).value

    def __setitem__(self, name: str, value: Any) -> None:
        found = self._checked(name, value)
        change = self._changes[name]
        if change is not None:
            change(found)
        self._lines[name] = replace(self._lines[name], value=found)

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def get(self, name: str, default: Any = None) -> Any:
        """Its value, or `default` where there is no such parameter."""
        return self._lines[name].value if name in self._lines else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def lines(self) -> list[Parameter]:
        """As hosts send them."""
        return list(self._lines.values())

    def _line(self, name: str) -> Parameter:
        if name not in self._lines:
            near = difflib.get_close_matches(str(name), self._lines, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(self._lines)}"
            raise BadArgument(f"there is no parameter {name!r}. {hint}")
        return self._lines[name]

    def _checked(self, name: str, value: Any) -> Any:
        """A value as its parameter takes it; pages may send anything."""
        line = self._line(name)
        found = _CHECKS[line.kind](value)
        if found is None or (line.choices and found not in line.choices):
            wanted = f"one of {', '.join(line.choices)}" if line.choices else f"of kind {line.kind}"
            raise BadArgument(f"{name} is {wanted}, not {value!r}")
        if line.minimum is not None and found < line.minimum:
            raise BadArgument(f"{name} is at least {line.minimum:g}, not {value!r}")
        if line.maximum is not None and found > line.maximum:
            raise BadArgument(f"{name} is at most {line.maximum:g}, not {value!r}")
        return found


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isinstance(value, bool) or not math.isfinite(found) else found


def _integer(value: Any) -> int | None:
    found = _number(value)
    return None if found is None or found != int(found) else int(value if isinstance(value, int) else found)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "number": _number,
    "integer": _integer,
    "text": lambda value: value if isinstance(value, str) else None,
    "choice": lambda value: value if isinstance(value, str) else None,
    "flag": lambda value: value if isinstance(value, bool) else None,
}


def _kind(value: Any, name: str) -> str:
    for type_, kind in ((bool, "flag"), (int, "integer"), (float, "number"), (str, "text")):
        if isinstance(value, type_):
            return kind
    raise BadArgument(f"parameter {name!r} is a number, text, or true or false; not a {type(value).__name__}")
