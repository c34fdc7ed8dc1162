"""A simulation's parameters: named, typed, bounded values that code and pages may change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torcheer.control.control_records import Parameter
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean

Change = Callable[[Any], Any]


class Parameters(Mapping[str, Any]):
    """Values by name; setting one validates it and calls its `change` callback."""

    def __init__(self) -> None:
        self._records: dict[str, Parameter] = {}
        self._changes: dict[str, Change | None] = {}

    def add(self, name: str, value: Any, *, change: Change | None = None, **settings: Any) -> None:
        """Add a parameter; `settings` are fields of `Parameter`.

        `change` is called with every new value.
        """
        if name in self._records:
            raise BadArgument(f"there is a parameter {name!r} already")
        kind = settings.pop("kind", "") or ("choice" if settings.get("choices") else _kind(value, name))
        self._records[name] = Parameter(name, value, kind, **{"editable": True, **settings})
        self._changes[name] = change
        self._records[name] = replace(self._records[name], value=self._validate(name, value))

    def __getitem__(self, name: str) -> Any:
        return self._record(name).value

    def __setitem__(self, name: str, value: Any) -> None:
        valid = self._validate(name, value)
        change = self._changes[name]
        if change is not None:
            change(valid)
        self._records[name] = replace(self._records[name], value=valid)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter's value, or `default` if it does not exist."""
        return self._records[name].value if name in self._records else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> list[Parameter]:
        """The parameters as hosts send them."""
        return list(self._records.values())

    def _record(self, name: str) -> Parameter:
        if name not in self._records:
            hint = did_you_mean(name, self._records) or f" There are: {', '.join(self._records)}"
            raise BadArgument(f"there is no parameter {name!r}.{hint}")
        return self._records[name]

    def _validate(self, name: str, value: Any) -> Any:
        """Convert and validate a parameter's value; pages may send anything."""
        parameter = self._record(name)
        converted = _CHECKS[parameter.kind](value)
        if converted is None or (parameter.choices and converted not in parameter.choices):
            wanted = f"one of {', '.join(parameter.choices)}" if parameter.choices else f"of kind {parameter.kind}"
            raise BadArgument(f"{name} is {wanted}, not {value!r}")
        if parameter.minimum is not None and converted < parameter.minimum:
            raise BadArgument(f"{name} is at least {parameter.minimum:g}, not {value!r}")
        if parameter.maximum is not None and converted > parameter.maximum:
            raise BadArgument(f"{name} is at most {parameter.maximum:g}, not {value!r}")
        return converted


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isinstance(value, bool) or not math.isfinite(number) else number


def _integer(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or number != int(number) else int(value if isinstance(value, int) else number)


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
