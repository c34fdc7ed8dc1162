"""Convert dataclass records to and from JSON values: `to_json(record)` and `from_json(Record, value)`."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from torcheer.errors import BadArgument

T = TypeVar("T")


def to_json(record: Any) -> dict[str, Any]:
    """Convert a record to a dict of JSON values."""
    return asdict(record)


def from_json(kind: type[T], value: Any) -> T:
    """Build a record of type `kind` from a dict; BadArgument where it does not fit. Unknown keys are ignored."""
    return typing.cast(T, _parse(kind, value, kind.__name__))


def _parse(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _parse_record(kind, value, where)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _parse_union(kind, value, where)
    if origin is tuple:
        return _parse_tuple(typing.get_args(kind), value, where)
    if origin is list:
        (inner,) = typing.get_args(kind)
        return [_parse(inner, item, where) for item in _require_list(value, where)]
    if origin is dict:
        return {
            key: _parse(typing.get_args(kind)[1], item, where) for key, item in _require_mapping(value, where).items()
        }
    return _parse_scalar(kind, value, where)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _parse_record(kind: Any, value: Any, where: str) -> Any:
    items, arguments = _require_mapping(value, where), {}
    for field in fields(kind):
        if field.name in items:
            arguments[field.name] = _parse(_hints(kind)[field.name], items[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadArgument(f"{where} has no {field.name!r}")
    return kind(**arguments)


def _parse_union(kind: Any, value: Any, where: str) -> Any:
    choices = typing.get_args(kind)
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        try:
            return _parse(choice, value, where)
        except BadArgument as error:
            problem = error
    raise problem


def _parse_tuple(inner: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    items = _require_list(value, where)
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_parse(inner[0], item, where) for item in items)
    if len(items) != len(inner):
        raise BadArgument(f"{where} has {len(items)} parts, not {len(inner)}")
    return tuple(_parse(item_kind, item, where) for item_kind, item in zip(inner, items))


def _require_list(value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise BadArgument(f"{where} is a {type(value).__name__}, not a list")
    return value


def _require_mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadArgument(f"{where} is a {type(value).__name__}, not a record")
    return value


def _parse_scalar(kind: Any, value: Any, where: str) -> Any:
    is_valid = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not is_valid:
        raise BadArgument(f"{where} is a {type(value).__name__}, not a {getattr(kind, '__name__', kind)}")
    return value
