"""Errors about config values: their location, the value, and the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torcheer.config.line_numbers import KeyPath
from torcheer.errors import BadConfig
from torcheer.terminal import did_you_mean, short_repr

if TYPE_CHECKING:
    from torcheer.config.config_files import Config

MISSING = object()


def problem(config: Config, path: Sequence[str | int], message: str, known: Iterable[str] = ()) -> BadConfig:
    """Make an error about one value: `config.json:12: models.net.class = 'Lienar': message.`

    `known`: the valid names; the one nearest to the value, or to the key, is suggested.
    """
    value = lookup_value(config.data, tuple(path))
    shown = "" if value is MISSING or isinstance(value, dict | list) or not path else f" = {short_repr(value)}"
    known = list(known)
    words = [word for word in (value, *path[-1:]) if isinstance(word, str)]
    suggestion = next(filter(None, (did_you_mean(word, known) for word in words)), "")
    end = "" if message.endswith("?") else "."
    return BadConfig(f"{where(config, path)}{shown}: {message.rstrip('.')}{end}{suggestion}")


def where(config: Config, path: Sequence[str | int]) -> str:
    """Format the location of a value: `config.json:12: models.net.class`."""
    parent = tuple(path)
    while parent and lookup_value(config.data, parent) is MISSING:
        parent = parent[:-1]  # a missing key has the line of its parent
    line = config.line(parent)
    start = f"{config.path} (overridden)" if line is None else f"{config.path}:{line}"
    return f"{start}: {format_path(path)}" if path else start


def lookup_value(data: Any, path: KeyPath) -> Any:
    """Return the value at a path, or MISSING."""
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return data


def format_path(path: Sequence[str | int]) -> str:
    """Format a path with dots; a key that is no plain word is quoted."""
    return ".".join(str(key) if is_plain_key(key) else repr(key) for key in path)


def is_plain_key(key: str | int) -> bool:
    return isinstance(key, int) or key.replace("-", "_").isidentifier()
