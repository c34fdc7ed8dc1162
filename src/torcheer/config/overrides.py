"""Changing single values of a config from the command line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torcheer.config.config_files import Config
from torcheer.config.line_numbers import DEPTH, KeyPath
from torcheer.config.problems import brief, dotted
from torcheer.errors import BadConfig


def override(config: Config, changes: Iterable[str]) -> Config:
    """A config in which each `key.path=value` holds; the value is read as JSON, or else is a text.

    `override(config, ["train.epochs=3", "models.0.class=my_module.Net"])`
    """
    changes = list(changes)
    data, lines = copy.deepcopy(config.data), dict(config.lines)
    for change in changes:
        keys, value = split(change)
        path = put(data, keys, value, change)
        lines = {at: line for at, line in lines.items() if at[: len(path)] != path}
    return replace(config, data=data, lines=lines, overrides=config.overrides + changes)


def split(change: str) -> tuple[list[str], Any]:
    name, equals, text = change.partition("=")
    keys = name.split(".")
    if not equals or not all(keys) or name != name.strip():
        raise BadConfig(f"override {brief(change)}: write it as key.path=value, such as train.epochs=3")
    value = value_of(text, change)
    if deeper(value, DEPTH - len(keys)):
        raise BadConfig(f"override {brief(change)}: nested more than {DEPTH} levels deep")
    return keys, value


def value_of(text: str, change: str) -> Any:
    """A value as JSON would have it, or the text itself."""
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except json.JSONDecodeError:
        return text
    except RecursionError:
        raise BadConfig(f"override {brief(change)}: nested more than {DEPTH} levels deep") from None
    except ValueError as error:  # a key given twice, a whole number of thousands of digits
        raise BadConfig(f"override {brief(change)}: {error}") from None


def deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(deeper(item, levels - 1) for item in items)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return found


def refuse(text: str) -> Any:
    raise json.JSONDecodeError("NaN and Infinity are no JSON", text, 0)


def put(data: Any, keys: list[str], value: Any, change: str) -> KeyPath:
    """Set one value and give the path to it, with the numbers of list items as numbers."""
    path: KeyPath = ()
    for key in keys[:-1]:
        place = step(data, key, path, change)
        if isinstance(data, dict):
            data.setdefault(key, {})
        data, path = data[place], (*path, place)
    last = step(data, keys[-1], path, change)
    data[last] = value
    return (*path, last)


def step(data: Any, key: str, path: KeyPath, change: str) -> str | int:
    """The key or the number under which `data` has, or may have, what `key` names."""
    if isinstance(data, dict):
        return key
    here = dotted(path)
    if not isinstance(data, list):
        raise BadConfig(f"override {brief(change)}: {here} is {brief(data)}, which has no keys")
    names = [item.get("name") if isinstance(item, dict) else None for item in data]
    if names.count(key) == 1:
        return names.index(key)
    if names.count(key):
        numbers = ", ".join(str(number) for number, name in enumerate(names) if name == key)
        raise BadConfig(f"override {brief(change)}: {here} has {key!r} more than once; use one of {numbers}")
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(data)):
        there = f"0 to {len(data) - 1}" if data else "nothing yet"
        known = f" ({', '.join(name for name in names if isinstance(name, str))})" if any(names) else ""
        raise BadConfig(f"override {brief(change)}: {here} is a list with {there}{known}, and {key!r} is not among it")
    return int(key)
