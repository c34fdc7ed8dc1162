"""Records to and from what JSON holds: `plain(record)` and `read(Record, value)`."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from torcheer.errors import BadArgument

T = TypeVar("T")


def plain(record: Any) -> dict[str, Any]:
    """A record as a dict of what JSON holds."""
    return asdict(record)


def read(kind: type[T], value: Any) -> T:
    """The record that a dict holds; BadArgument where it cannot be one. Keys that it does not have are left out."""
    return typing.cast(T, _read(kind, value, kind.__name__))


def _read(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _record(kind, value, where)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _either(kind, value, where)
    if origin is tuple:
        return _tuple(typing.get_args(kind), value, where)
    if origin is list:
        (inner,) = typing.get_args(kind)
        return [_read(inner, one, where) for one in _listed(value, where)]
    if origin is dict:
        return {key: _read(typing.get_args(kind)[1], one, where) for key, one in _mapped(value, where).items()}
    return _number_or_text(kind, value, where)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _record(kind: Any, value: Any, where: str) -> Any:
    given, found = _mapped(value, where), {}
    for field in fields(kind):
        if field.name in given:
            found[field.name] = _read(_hints(kind)[field.name], given[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadArgument(f"{where} has no {field.name!r}")
    return kind(**found)


def _either(kind: Any, value: Any, where: str) -> Any:
    choices = typing.get_args(kind)
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        try:
            return _read(choice, value, where)
        except BadArgument as error:
            problem = error
    raise problem


def _tuple(inner: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    items = _listed(value, where)
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_read(inner[0], one, where) for one in items)
    if len(items) != len(inner):
        raise BadArgument(f"{where} has {len(items)} parts, not {len(inner)}")
    return tuple(_read(one, item, where) for one, item in zip(inner, items))


def _listed(value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise BadArgument(f"{where} is a {type(value).__name__}, not a list")
    return value


def _mapped(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadArgument(f"{where} is a {type(value).__name__}, not a record")
    return value


def _number_or_text(kind: Any, value: Any, where: str) -> Any:
    good = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not good:
        raise BadArgument(f"{where} is a {type(value).__name__}, not a {getattr(kind, '__name__', kind)}")
    return value
