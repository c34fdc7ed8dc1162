"""The parameters of a loop that a page or code may change: checked, set and recorded in one way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from torcheer.control.control_records import Parameter
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean, first_names, short_repr

CHANGES: Final = ("changes", "Changes of parameters")  # the table of changes: name, title


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter with its current value, and how to set another."""

    parameter: Parameter
    set: Callable[[Any], object]  # takes a checked value; raises BadArgument to refuse it


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """A parameter that was changed."""

    name: str
    before: Any
    after: Any

    def row(self, counters: Mapping[str, int]) -> dict[str, Any]:
        """A row of the table of changes; `counters` say when it was changed."""
        return {**counters, "name": self.name, "before": str(self.before), "after": str(self.after)}

    def __str__(self) -> str:
        before, after = (f"{v:g}" if isinstance(v, int | float) else repr(v) for v in (self.before, self.after))
        return f"{self.name} is {after} from here on, and was {before}"


def set_parameter(settings: Iterable[Setting], name: str, value: Any) -> ParameterChange | None:
    """Change one of these settings; None where it has that value already.

    Raises BadArgument where it cannot be changed, or takes no such value.
    """
    by_name = {setting.parameter.name: setting for setting in settings}
    checked = check_change([setting.parameter for setting in by_name.values()], name, value)
    setting, before = by_name[name], by_name[name].parameter.value
    if checked == before:
        return None
    setting.set(checked)
    return ParameterChange(name, before, checked)


def check_change(parameters: Iterable[Parameter], name: str, value: Any) -> Any:
    """Return the value that an editable parameter would have; raise where it cannot be changed to that."""
    known = {parameter.name: parameter for parameter in parameters}
    editable = {name: parameter for name, parameter in known.items() if parameter.editable}
    if name not in editable:
        near = "" if name in known else did_you_mean(name, editable)
        hint = near or f" There are: {first_names(editable) or 'none'}"
        raise BadArgument(f"{name[:200]!r} cannot be changed while this runs.{hint}")
    return check_value(editable[name], value)


def check_value(parameter: Parameter, value: Any) -> Any:
    """Convert a value, or each of a list, to a parameter's kind and check its limits; pages may send anything."""
    if isinstance(parameter.value, list | tuple):
        if not isinstance(value, list | tuple):
            raise BadArgument(f"{parameter.name} cannot be {short_repr(value)}: it must be a list")
        return [check_value(replace(parameter, value=None), part) for part in value]
    convert, needed = _KINDS.get(parameter.kind, _KINDS["text"])
    converted, least, most = convert(value), parameter.minimum, parameter.maximum
    if parameter.choices:
        needed = f"one of {', '.join(parameter.choices)}"
    if converted is not None and (not parameter.choices or converted in parameter.choices):
        if least is not None and converted < least:
            needed = f"{least:g} or more"
        elif most is not None and converted > most:
            needed = f"{most:g} or less"
        else:
            return converted
    raise BadArgument(f"{parameter.name} cannot be {short_repr(value)}: it must be {needed}")


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isinstance(value, bool) or not math.isfinite(number) else number


def _integer(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or number != int(number) else int(value if isinstance(value, int) else number)


_KINDS: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "number": (_number, "a number"),
    "integer": (_integer, "a whole number"),
    "text": (lambda value: value if isinstance(value, str) else None, "text"),
    "choice": (lambda value: value if isinstance(value, str) else None, "text"),
    "flag": (lambda value: value if isinstance(value, bool) else None, "true or false"),
}


class Parameters(Mapping[str, Any]):
    """Parameters that keep their own values, by name; setting one checks it and calls its `change` callback."""

    def __init__(self) -> None:
        self._records: dict[str, Parameter] = {}
        self._callbacks: dict[str, Callable[[Any], Any] | None] = {}

    def add(self, name: str, value: Any, *, change: Callable[[Any], Any] | None = None, **settings: Any) -> None:
        """Add a parameter; `settings` are fields of `Parameter`.

        `change` is called with every new value.
        """
        if name in self._records:
            raise BadArgument(f"there is a parameter {name!r} already")
        kind = settings.pop("kind", "") or ("choice" if settings.get("choices") else _kind(value, name))
        record = Parameter(name, value, kind, **{"editable": True, **settings})
        self._records[name], self._callbacks[name] = replace(record, value=check_value(record, value)), change

    def __getitem__(self, name: str) -> Any:
        return self._record(name).value

    def __setitem__(self, name: str, value: Any) -> None:
        self._set(name, check_value(self._record(name), value))

    def _set(self, name: str, value: Any) -> None:
        callback = self._callbacks[name]
        if callback is not None:
            callback(value)
        self._records[name] = replace(self._records[name], value=value)

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

    def settings(self) -> list[Setting]:
        """The parameters as settings that a page may change."""
        return [Setting(record, partial(self._set, name)) for name, record in self._records.items()]

    def _record(self, name: str) -> Parameter:
        if name not in self._records:
            hint = did_you_mean(name, self._records) or f" There are: {', '.join(self._records)}"
            raise BadArgument(f"there is no parameter {name!r}.{hint}")
        return self._records[name]


def _kind(value: Any, name: str) -> str:
    for type_, kind in ((bool, "flag"), (int, "integer"), (float, "number"), (str, "text")):
        if isinstance(value, type_):
            return kind
    raise BadArgument(f"parameter {name!r} is a number, text, or true or false; not a {type(value).__name__}")
