"""What a page says, made into the dataclasses of `messages`: every field checked, everything bounded."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import typing
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

from torcheer.control.control_records import ACTIONS, Every
from torcheer.errors import BadArgument
from torcheer.studio.connections.message_names import FROM_PAGE

MOST_BYTES: Final = 64 * 1024
_MOST_TEXT, _MOST_LIST, _FAR = 4096, 1024, 2**53 - 1
_WHOLE = {"look": 0, "question": 0, "item": 0, "count": 0, "raster": 0}  # the least they may be; others -1
_MOST = {"raster": 10_000, "count": 10**9}
_ONE_OF = {  # of text
    "action": ACTIONS, "unit": ("auto", "trial", "epoch", "off"), "analysis": ("similarity", "pca", "clusters"),
}  # fmt: skip


class Unreadable(BadArgument):
    """A message that is none of ours; `question` is the number of what was asked, where it has one."""

    def __init__(self, text: str, question: int = -1) -> None:
        super().__init__(text)
        self.question = question


def parse(text: str | bytes) -> Any:
    """The message that a page sent, as one of `messages.FROM_PAGE`; raises `Unreadable`."""
    found = _json(text)
    kind = found.pop("kind", None)
    cls = FROM_PAGE.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise Unreadable(f"no message is called {_short(kind)}; there are {', '.join(FROM_PAGE)}")
    try:
        return _made(cls, found)
    except Unreadable as error:
        raise Unreadable(f"{kind}: {error}", _question(found)) from None


def _json(text: str | bytes) -> dict[str, Any]:
    if len(text) > MOST_BYTES:
        raise Unreadable(f"a message of {len(text)} bytes; at most {MOST_BYTES} are read")
    try:
        found = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except (ValueError, RecursionError):  # also UnicodeDecodeError, numbers of 5,000 digits, and a hundred thousand [
        raise Unreadable("a message that is not JSON, or says a thing twice") from None
    if not isinstance(found, dict):
        raise Unreadable("a message is an object with a `kind`")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _made(cls: type[Any], found: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    for name in found:
        if name not in hints:
            raise Unreadable(f"nothing is called {_short(name)}; there is {', '.join(hints)}.{meant(name, hints)}")
    for field in dataclasses.fields(cls):
        if field.name not in found and field.default is dataclasses.MISSING:
            raise Unreadable(f"{field.name} is missing")
    return cls(**{name: _value(name, value, hints[name]) for name, value in found.items()})


def _value(name: str, value: Any, hint: Any) -> Any:
    if hint is Every:
        return _every(name, value)
    if typing.get_origin(hint) is tuple:
        return _texts(name, value)
    if hint is Any:
        return _free(name, value)
    if type(value) is not hint:  # true is no number, 1.0 no index
        raise Unreadable(f"{name} is {_short(value)}; it must be {_SAID[hint]}")
    return _CHECKS[hint](name, value) if hint in _CHECKS else value


def _every(name: str, value: Any) -> Every:
    if not isinstance(value, dict):
        raise Unreadable(f"{name} is {_short(value)}; it must be an object with `unit` and `count`")
    made: Every = _made(Every, value)
    if made.count < 1:
        raise Unreadable(f"{name}: count is {made.count}; it must be 1 or more")
    return made


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 32 or not all(type(one) is str for one in value):
        raise Unreadable(f"{name} is {_short(value)}; it must be a list of at most 32 texts")
    return tuple(_text(name, one) for one in value)


def _text(name: str, value: str) -> str:
    if len(value) > _MOST_TEXT or not _sayable(value):
        raise Unreadable(f"{name} is a text that is too long, or that UTF-8 cannot say")
    if name in _ONE_OF and value not in _ONE_OF[name]:
        raise Unreadable(f"{name} is {_short(value)}; it must be one of {', '.join(_ONE_OF[name])}")
    return value


def _sayable(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def _index(name: str, value: int) -> int:
    least, most = _WHOLE.get(name, -1), _MOST.get(name, _FAR)
    if not least <= value <= most:
        raise Unreadable(f"{name} is {_short(value)}; it must be from {least} to {most}")
    return value


def _free(name: str, value: Any) -> Any:
    """A parameter's value: text, a number, true or false, or a list of these."""
    if isinstance(value, list) and len(value) <= _MOST_LIST:
        return [_free(name, one) for one in value if not isinstance(one, list) or _refuse(name, value)]
    if value is None or isinstance(value, (dict, list)):
        _refuse(name, value)
    if isinstance(value, str):
        return _text(name, value)
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > _FAR):
        _refuse(name, value)
    return value


def _refuse(name: str, value: Any) -> bool:
    raise Unreadable(f"{name} is {_short(value)}; it must be text, a number, true or false, or a list of these")


def _question(found: dict[str, Any]) -> int:
    number = found.get("question")
    return number if type(number) is int and 0 <= number <= _FAR else -1


def meant(name: str, names: Iterable[str]) -> str:
    """The nearest of these names, as the end of a sentence; nothing where none is near."""
    near = get_close_matches(name[:200], list(names)[:2000], 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True) if isinstance(value, (str, int, float, bool, type(None))) else "a list"
    text = "an object" if isinstance(value, dict) else text
    return text if len(text) <= 60 else f"{text[:57]}…"


_SAID = {str: "text", int: "a whole number", bool: "true or false"}
_CHECKS: dict[Any, Any] = {str: _text, int: _index}
