"""Saying what is wrong with a config: where it stands, what is there, what was meant."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from torcheer.config.line_numbers import KeyPath
from torcheer.errors import BadConfig

if TYPE_CHECKING:
    from torcheer.config.config_files import Config

MISSING = object()


def problem(config: Config, path: Sequence[str | int], message: str, known: Iterable[str] = ()) -> BadConfig:
    """An error about one value, to be raised: `config.json:12: models.net.class = 'Lienar': message.`

    `known` are the names that would have been right; the nearest one to the value is named, or to the key.
    """
    value = value_at(config.data, tuple(path))
    shown = "" if value is MISSING or isinstance(value, dict | list) or not path else f" = {brief(value)}"
    known = list(known)
    words = [word for word in (value, *path[-1:]) if isinstance(word, str)]
    meant = next(filter(None, (nearest(word, known) for word in words)), "")
    end = "" if message.endswith("?") else "."
    return BadConfig(f"{where(config, path)}{shown}: {message.rstrip('.')}{end}{meant}")


def where(config: Config, path: Sequence[str | int]) -> str:
    """The place of a value, for people: `config.json:12: models.net.class`."""
    there = tuple(path)
    while there and value_at(config.data, there) is MISSING:
        there = there[:-1]  # a key that is missing is missing from something
    line = config.line(there)
    start = f"{config.path} (overridden)" if line is None else f"{config.path}:{line}"
    return f"{start}: {dotted(path)}" if path else start


def nearest(word: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" with the nearest of the known words, or "" where none is near."""
    by_lower = {name.lower(): name for name in known if name != word}
    found = get_close_matches(word[:100].lower(), by_lower, 1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""


def value_at(data: Any, path: KeyPath) -> Any:
    """The value at a path, or MISSING."""
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return data


def dotted(path: Sequence[str | int]) -> str:
    """A path for people; a key that is no plain word stands in quotes."""
    return ".".join(str(key) if is_word(key) else repr(key) for key in path)


def is_word(key: str | int) -> bool:
    return isinstance(key, int) or key.replace("-", "_").isidentifier()


def brief(value: Any) -> str:
    """A value on one short line."""
    return shortened.repr(value)


shortened = reprlib.Repr()
shortened.maxstring = shortened.maxother = shortened.maxlong = 60
