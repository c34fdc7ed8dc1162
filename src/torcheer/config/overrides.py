"""Overrides of single config values from the command line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from torcheer.config import yaml_text
from torcheer.config.config_files import Config
from torcheer.config.line_numbers import MAX_DEPTH, KeyPath, TextFault
from torcheer.config.problems import format_path
from torcheer.config.yaml_text import FLOAT
from torcheer.errors import BadConfig
from torcheer.terminal import short_repr

WORDS_FOR_VALUES = {"true": "true", "false": "false", "none": "null"}  # Python's, and what is written for them


def override(
    config: Config, changes: Iterable[str], *, find_key: Callable[[dict[str, Any], str], str] | None = None
) -> Config:
    """Return a config with each `key.path=value` applied.

    A value is JSON, a number or a list in brackets as YAML has it (`.5e3`, `[.9, conv1]`), or else a string.

    `find_key` returns the path in the data that a key means; by default a key is its path.

    `override(config, ["train.epochs=3", "models.0.class=my_module.Net"])`
    """
    changes = list(changes)
    data, lines, words = copy.deepcopy(config.data), dict(config.lines), config.words
    for change in changes:
        keys, value = parse_override(change)
        if find_key is not None:
            keys = find_key(data, ".".join(keys)).split(".")
        path = set_value(data, keys, value, change)
        lines = {key_path: line for key_path, line in lines.items() if key_path[: len(path)] != path}
        words = frozenset(key_path for key_path in words if key_path[: len(path)] != path)
        words |= {path} if value == change.partition("=")[2] else set()
    return replace(config, data=data, lines=lines, overrides=config.overrides + changes, words=words)


def parse_override(change: str) -> tuple[list[str], Any]:
    name, equals, text = change.partition("=")
    keys = name.split(".")
    if not equals or not all(keys) or name != name.strip():
        raise BadConfig(f"override {short_repr(change)}: write it as key.path=value, such as train.epochs=3")
    value = parse_value(text, change)
    if is_deeper(value, MAX_DEPTH - len(keys)):
        raise BadConfig(f"override {short_repr(change)}: nested more than {MAX_DEPTH} levels deep")
    return keys, value


def parse_value(text: str, change: str) -> Any:
    """Parse a value as JSON, or as a number or brackets of YAML, or return the text itself."""
    try:
        try:
            return json.loads(text, object_pairs_hook=reject_duplicate_keys, parse_constant=reject_constant)
        except json.JSONDecodeError:
            return float(text) if FLOAT.match(text) else _bracketed(text)
    except RecursionError:
        raise BadConfig(f"override {short_repr(change)}: nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:  # a key given twice, a whole number of thousands of digits
        raise BadConfig(f"override {short_repr(change)}: {error}") from None


def _bracketed(text: str) -> Any:
    """Parse `[.9, conv1]` or `{a: .5}` as YAML; return any other text itself."""
    if text[:1] not in ("[", "{"):
        return text
    try:
        return yaml_text.parse(text)[0]
    except TextFault:  # also where PyYAML is not installed
        return text


def word_problem(place: str, value: Any, word: str) -> str:
    """Return why a word without quotes is not meant where there is a number, or true or false; "" if it may be.

    `place`: who has the value that is there, such as "the config has".
    """
    if isinstance(value, bool):
        return f"{place} true or false there{instead_of_word(word)}" if word.lower() in WORDS_FOR_VALUES else ""
    return f"{place} a number there, {value}{instead_of_word(word)}" if isinstance(value, int | float) else ""


def instead_of_word(word: str) -> str:
    """Return the end of a sentence that refuses a word: what to write."""
    if value := WORDS_FOR_VALUES.get(word.lower()):
        return f", and this is a string: write {value}"
    return f", and this is a string. If a string is meant, put it in quotes: '\"{word}\"'"


def is_deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(is_deeper(item, levels - 1) for item in items)


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {duplicate!r} is given twice")
    return mapping


def reject_constant(text: str) -> Any:
    raise json.JSONDecodeError("NaN and Infinity are no JSON", text, 0)


def set_value(data: Any, keys: list[str], value: Any, change: str) -> KeyPath:
    """Set one value and return its path, with list indices as numbers."""
    path: KeyPath = ()
    for key in keys[:-1]:
        position = resolve_key(data, key, path, change)
        if isinstance(data, dict):
            data.setdefault(key, {})
        data, path = data[position], (*path, position)
    last = resolve_key(data, keys[-1], path, change)
    data[last] = value
    return (*path, last)


def resolve_key(data: Any, key: str, path: KeyPath, change: str) -> str | int:
    """Resolve a key to a dict key or a list index; list items are also found by their "name"."""
    if isinstance(data, dict):
        return key
    location = format_path(path)
    if not isinstance(data, list):
        raise BadConfig(f"override {short_repr(change)}: {location} is {short_repr(data)}, which has no keys")
    names = [item.get("name") if isinstance(item, dict) else None for item in data]
    if names.count(key) == 1:
        return names.index(key)
    if names.count(key):
        numbers = ", ".join(str(number) for number, name in enumerate(names) if name == key)
        raise BadConfig(f"override {short_repr(change)}: {location} has {key!r} more than once; use one of {numbers}")
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(data)):
        indices = f"0 to {len(data) - 1}" if data else "nothing yet"
        names_text = f" ({', '.join(name for name in names if isinstance(name, str))})" if any(names) else ""
        raise BadConfig(
            f"override {short_repr(change)}: {location} is a list with {indices}{names_text}, "
            f"and {key!r} is not among it"
        )
    return int(key)
