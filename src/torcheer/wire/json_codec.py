"""Records and messages as JSON: one encoder and one checked parser for hosts, viewers and pages.

A message is a dataclass; on the wire it has its `kind` beside its fields: `StateCame` is {"kind": "state_came", …}.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean

T = TypeVar("T")

_MOST_TEXT, _MOST_LIST, _MOST_INTEGER = 4096, 1024, 2**53 - 1
_LARGEST = 10**300  # of integers that a float holds
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_TYPE_NAMES = {str: "text", int: "a whole number", bool: "true or false", float: "a number"}


# -- limits: annotations of a field, checked where a page speaks -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Between:
    """A whole number from `low` to `high`."""

    low: int = 0
    high: int = _MOST_INTEGER


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text of these."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AtMost:
    """A list of at most so many texts."""

    count: int


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter's value: text, a number, true or false, or a list of these."""


# -- writing ---------------------------------------------------------------------------------------------------------


@cache
def message_kind(cls: Any) -> str:
    """A message class's name on the wire: NetCame is "net_came"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def by_kind(*classes: Any) -> dict[str, type[Any]]:
    """Message classes by their names on the wire."""
    return {message_kind(cls): cls for cls in classes}


def to_json(record: Any) -> dict[str, Any]:
    """Convert a record to a dict of JSON values."""
    return asdict(record)


def to_message(message: Any) -> dict[str, Any]:
    """A message as a dict; the records in it are converted when it is encoded.

    Not by asdict, which copies every number of a table.
    """
    cls: Any = type(message)
    return {"kind": message_kind(cls), **_shallow(message)}


def serialize(message: Any) -> str:
    """Encode a message for a browser, whose JSON has no NaN and no infinities: they become their names."""
    record = to_message(message)
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":"), default=plain_value)
    except ValueError:
        return json.dumps(_without_nan(record), allow_nan=False, separators=(",", ":"))


def _shallow(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_nan(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else _NON_FINITE[str(value)]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _without_nan(plain_value(value))


def plain_value(value: Any) -> Any:
    """Convert a record to a dict, an array or numpy scalar to lists and numbers, anything else to its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return _shallow(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


# -- parsing ---------------------------------------------------------------------------------------------------------


def from_json(kind: type[T], value: Any) -> T:
    """Build a record of type `kind` from a dict; BadArgument where it does not fit. Unknown keys are ignored."""
    return typing.cast(T, _Parser(strict=False).record(kind, value, kind.__name__))


def parse_message(kinds: Mapping[str, type[Any]], message: Mapping[str, Any], *, strict: bool = False) -> Any:
    """Build the message that a dict says; BadArgument where it does not fit.

    `strict`, for pages: unknown keys are refused, and every text and number is bounded.
    """
    kind = message.get("kind")
    cls = kinds.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise BadArgument(f"no message is called {_short(kind)}; there are {', '.join(kinds)}")
    try:
        return _Parser(strict).record(cls, {name: part for name, part in message.items() if name != "kind"}, "")
    except BadArgument as error:
        raise BadArgument(f"{kind}: {error}") from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


class _Parser:
    """Builds records from JSON values; `where` is the place of a value in them, for errors."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict

    def record(self, kind: Any, value: Any, where: str) -> Any:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            _refuse(where, value, f"an object with {_listed([f'`{field.name}`' for field in fields(kind)])}")
        hints = _hints(kind)
        if self._strict and (unknown := [name for name in value if name not in hints]):
            near = did_you_mean(unknown[0], hints)
            raise BadArgument(f"nothing is called {_short(unknown[0])}; there is {', '.join(hints)}.{near}")
        arguments, place = {}, f"{where}." if where else ""
        for field in fields(kind):
            if field.name in value:
                arguments[field.name] = self._value(hints[field.name], value[field.name], place + field.name)
            elif field.default is MISSING and field.default_factory is MISSING:
                raise BadArgument(f"{place}{field.name} is missing")
        return kind(**arguments)

    def _value(self, kind: Any, value: Any, where: str) -> Any:
        if kind is Any:
            return value
        if is_dataclass(kind):
            return self.record(kind, value, where)
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self._limited(inner[0], inner[1], value, where)
        if origin in (typing.Union, types.UnionType):
            return self._union(inner, value, where)
        if origin in (list, tuple):
            return self._sequence(origin, inner, value, where)
        if origin is dict:
            if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
                _refuse(where, value, "an object")
            return {key: self._value(inner[1], part, where) for key, part in value.items()}
        return self._scalar(kind, value, where)

    def _union(self, choices: Sequence[Any], value: Any, where: str) -> Any:
        if value is None and type(None) in choices:
            return None
        for choice in choices:
            try:
                return self._value(choice, value, where)
            except BadArgument as error:
                problem = error
        raise problem

    def _sequence(self, origin: Any, inner: Sequence[Any], value: Any, where: str) -> Any:
        if not isinstance(value, list | tuple):
            _refuse(where, value, "a list")
        if origin is list or inner[-1] is Ellipsis:
            kind = inner[0]
            return origin(value) if kind is Any else origin(self._value(kind, part, where) for part in value)
        if len(value) != len(inner):
            raise BadArgument(f"{where} has {len(value)} parts, not {len(inner)}")
        return tuple(self._value(kind, part, where) for kind, part in zip(inner, value))

    def _scalar(self, kind: Any, value: Any, where: str) -> Any:
        if kind is float and type(value) is int and abs(value) < _LARGEST:
            return float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            _refuse(where, value, _TYPE_NAMES.get(kind, kind.__name__))
        if self._strict and kind is int:
            _check_number(where, value, -1, _MOST_INTEGER)
        if self._strict and kind is str and (len(value) > _MOST_TEXT or re.search("[\ud800-\udfff]", value)):
            raise BadArgument(f"{where} is a text that is too long, or that UTF-8 cannot say")
        return value

    def _limited(self, kind: Any, limit: Any, value: Any, where: str) -> Any:
        if not self._strict:
            return self._value(kind, value, where)
        if isinstance(limit, AtMost):
            if not isinstance(value, list) or len(value) > limit.count or not all(type(part) is str for part in value):
                _refuse(where, value, f"a list of at most {limit.count} texts")
        elif isinstance(limit, Setting):
            _check_setting(where, value, self)
        elif isinstance(limit, Between):
            if type(value) is not int:
                _refuse(where, value, _TYPE_NAMES[int])
            _check_number(where, value, limit.low, limit.high)
        parsed = self._value(kind, value, where)
        if isinstance(limit, OneOf) and parsed not in limit.choices:
            _refuse(where, value, f"one of {', '.join(limit.choices)}")
        return parsed


def _check_number(where: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        _refuse(where, value, f"{low} or more" if high == _MOST_INTEGER and low > 0 else f"from {low} to {high}")


def _check_setting(where: str, value: Any, parser: _Parser) -> None:
    parts = value if isinstance(value, list) and len(value) <= _MOST_LIST else [value]
    for part in parts:
        is_large = isinstance(part, int | float) and not abs(part) <= _MOST_INTEGER and not isinstance(part, bool)
        if part is None or isinstance(part, dict | list) or (is_large and not _is_finite_float(part)):
            _refuse(where, value, "text, a number, true or false, or a list of these")
        if isinstance(part, str):
            parser._scalar(str, part, where)


def _is_finite_float(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _refuse(where: str, value: Any, wanted: str) -> typing.NoReturn:
    raise BadArgument(f"{where} is {_short(value)}; it must be {wanted}")


def _listed(names: list[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True) if isinstance(value, (str, int, float, bool, type(None))) else "a list"
    text = "an object" if isinstance(value, dict) else text
    return text if len(text) <= 60 else f"{text[:57]}…"
