"""Parses a page's messages into the dataclasses of `messages`.

Every field is validated and bounded.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
from functools import cache
from typing import Any, Final

from torcheer.control.control_records import ACTIONS, Every
from torcheer.errors import BadArgument
from torcheer.studio.connections.message_names import FROM_PAGE
from torcheer.terminal import did_you_mean

MOST_BYTES: Final = 64 * 1024
_MOST_TEXT, _MOST_LIST, _MOST_INTEGER = 4096, 1024, 2**53 - 1
_MINIMUM = {"look": 0, "question": 0, "item": 0, "count": 0, "raster": 0}  # minimum of each; of other fields -1
_MAXIMUM = {"raster": 10_000, "count": 10**9}
_CHOICES = {  # of text fields
    "action": ACTIONS, "unit": ("auto", "trial", "epoch", "off"), "analysis": ("similarity", "pca", "clusters"),
}  # fmt: skip


class InvalidMessage(BadArgument):
    """An invalid message; `question` is its question's number, or -1."""

    def __init__(self, text: str, question: int = -1) -> None:
        super().__init__(text)
        self.question = question


def parse(text: str | bytes) -> Any:
    """Parse a page's message to one of `messages.FROM_PAGE`; raises `InvalidMessage`."""
    fields = _json(text)
    kind = fields.pop("kind", None)
    cls = FROM_PAGE.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidMessage(f"no message is called {_short(kind)}; there are {', '.join(FROM_PAGE)}")
    try:
        return _build(cls, fields)
    except InvalidMessage as error:
        raise InvalidMessage(f"{kind}: {error}", _question(fields)) from None


def _json(text: str | bytes) -> dict[str, Any]:
    if len(text) > MOST_BYTES:
        raise InvalidMessage(f"a message of {len(text)} bytes; at most {MOST_BYTES} are read")
    try:
        message = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except (ValueError, RecursionError):  # also UnicodeDecodeError, numbers of 5,000 digits, 100,000 nested lists
        raise InvalidMessage("a message that is not JSON, or says a thing twice") from None
    if not isinstance(message, dict):
        raise InvalidMessage("a message is an object with a `kind`")
    return message


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key twice")
    return unique


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(cls: Any, fields: dict[str, Any]) -> Any:
    hints = _hints(cls)
    for name in fields:
        if name not in hints:
            raise InvalidMessage(
                f"nothing is called {_short(name)}; there is {', '.join(hints)}.{did_you_mean(name, hints)}"
            )
    for field in dataclasses.fields(cls):
        if field.name not in fields and field.default is dataclasses.MISSING:
            raise InvalidMessage(f"{field.name} is missing")
    return cls(**{name: _value(name, value, hints[name]) for name, value in fields.items()})


def _value(name: str, value: Any, hint: Any) -> Any:
    if hint is Every:
        return _every(name, value)
    if typing.get_origin(hint) is tuple:
        return _texts(name, value)
    if hint is Any:
        return _free(name, value)
    if type(value) is not hint:  # exact types: true is no number, 1.0 no index
        raise InvalidMessage(f"{name} is {_short(value)}; it must be {_TYPE_NAMES[hint]}")
    return _CHECKS[hint](name, value) if hint in _CHECKS else value


def _every(name: str, value: Any) -> Every:
    if not isinstance(value, dict):
        raise InvalidMessage(f"{name} is {_short(value)}; it must be an object with `unit` and `count`")
    every: Every = _build(Every, value)
    if every.count < 1:
        raise InvalidMessage(f"{name}: count is {every.count}; it must be 1 or more")
    return every


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 32 or not all(type(text) is str for text in value):
        raise InvalidMessage(f"{name} is {_short(value)}; it must be a list of at most 32 texts")
    return tuple(_text(name, text) for text in value)


def _text(name: str, value: str) -> str:
    if len(value) > _MOST_TEXT or not _is_utf8(value):
        raise InvalidMessage(f"{name} is a text that is too long, or that UTF-8 cannot say")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise InvalidMessage(f"{name} is {_short(value)}; it must be one of {', '.join(_CHOICES[name])}")
    return value


def _is_utf8(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def _index(name: str, value: int) -> int:
    least, most = _MINIMUM.get(name, -1), _MAXIMUM.get(name, _MOST_INTEGER)
    if not least <= value <= most:
        raise InvalidMessage(f"{name} is {_short(value)}; it must be from {least} to {most}")
    return value


def _free(name: str, value: Any) -> Any:
    """A parameter's value: text, a number, true or false, or a list of these."""
    if isinstance(value, list) and len(value) <= _MOST_LIST:
        return [_free(name, part) for part in value if not isinstance(part, list) or _refuse(name, value)]
    if value is None or isinstance(value, (dict, list)):
        _refuse(name, value)
    if isinstance(value, str):
        return _text(name, value)
    if (isinstance(value, float) and not math.isfinite(value)) or (
        isinstance(value, int) and abs(value) > _MOST_INTEGER
    ):
        _refuse(name, value)
    return value


def _refuse(name: str, value: Any) -> bool:
    raise InvalidMessage(f"{name} is {_short(value)}; it must be text, a number, true or false, or a list of these")


def _question(fields: dict[str, Any]) -> int:
    number = fields.get("question")
    return number if type(number) is int and 0 <= number <= _MOST_INTEGER else -1


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True) if isinstance(value, (str, int, float, bool, type(None))) else "a list"
    text = "an object" if isinstance(value, dict) else text
    return text if len(text) <= 60 else f"{text[:57]}…"


_TYPE_NAMES = {str: "text", int: "a whole number", bool: "true or false"}
_CHECKS: dict[Any, Any] = {str: _text, int: _index}
