"""What a KEY of the command line means in a config: the same in every command, whichever form the config is in.

`lr`, `optimizer.lr`, `optimizers.adam.lr` and `initialize.definitions.adam.spec.kwargs.lr` are one field: a key is
its whole path, the path that it would have in another form, or the end of exactly one path.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from torcheer.config import Config, override
from torcheer.config.overrides import parse_value, word_problem
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean, first_names
from torcheer.training.spec.read.grammar import GROUPS, SINGULAR, TOP
from torcheer.training.spec.read.short_form import named_by_class

LONG = ("initialize", "definitions")
UNNAMED = ("spec", "kwargs")  # keys between a definition and its arguments
TRAIN = "train"


class Place(NamedTuple):
    """Where a config defines a part."""

    group: str
    names: tuple[str, ...]  # its name, then what else it may be called
    path: tuple[str, ...]


def with_changes(config: Config, changes: Iterable[str]) -> Config:
    """Return a training config with each KEY=VALUE of the command line applied."""

    changes, present = list(changes), dict(single_values(config.data))
    changed = override(config, changes, find_key=lambda data, name: known_key(name, replace(config, data=data)))
    for change in changes:
        name, _, text = change.partition("=")
        key = find_key(config.data, name)
        if key.partition(".")[0] in (*SINGULAR, *GROUPS, LONG[0]):  # an argument, whose kind no check knows
            refuse_word(name, text, present.get(key))
    return changed


def refuse_word(name: str, text: str, present: Any) -> None:
    """Refuse a bare word where the config has a number, or true or false; one in quotes is meant."""
    if parse_value(text, text) == text and (problem := word_problem("the config has", present, text)):
        raise BadArgument(f"{name}={text}: {problem}")


def known_key(name: str, config: Config) -> str:
    """Return the path of the field that a name means; raise with the nearest where there is none."""
    if path := find_key(config.data, name):
        return path
    paths = [path for path, _ in single_values(config.data)]
    ends = dict.fromkeys(path.rpartition(".")[2] for path in paths)
    hint = did_you_mean(name, [*ends, *paths, *TOP.fields, *TOP.short]) or f" There are {first_names(ends, 12)}"
    raise BadArgument(f"{config.path.name} has no field {name}.{hint}")


def find_key(data: Mapping[str, Any], name: str) -> str:
    """Return the path of the field that a key means, "" if there is none; raise where it could be any of several."""
    known = dict(single_values(data))
    name = _respelled(data, name, known)
    if name in known:
        return name
    same = [path for path in known if shortened(path) == shortened(name)]
    if len(same) == 1:
        return same[0]
    if name.partition(".")[0] in {*data, *TOP.fields, *TOP.short}:
        return name  # a field that the config leaves at its default
    matches = [path for path in known if path.endswith(f".{name}")]
    matches = matches or [path for path in known if f".{shortened(path)}".endswith(f".{shortened(name)}")]
    if len(matches) > 1:
        raise BadArgument(f"{name} could be any of {', '.join(matches)}; write more of its path")
    return matches[0] if matches else ""


def single_values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths of all single values, and the values; items of lists by their names."""
    for key, item in _items(value):
        inner = f"{path}.{key}" if path else key
        if isinstance(item, dict) or (isinstance(item, list) and any(isinstance(each, dict) for each in item)):
            yield from single_values(item, inner)
        else:
            yield inner, item


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list):
        names = [item.get("name") if isinstance(item, dict) else None for item in value]
        for place, item in enumerate(value):
            is_named = isinstance(names[place], str) and names.count(names[place]) == 1
            yield (str(names[place]) if is_named else str(place)), item


def _respelled(data: Mapping[str, Any], name: str, known: Container[str]) -> str:
    """Return a key as it would be in the form that the config is written in."""
    first, *rest = name.split(".")
    train = data.get(TRAIN)
    if first == TRAIN and rest and rest[0] in data and rest[0] in TOP.short:
        return ".".join(rest)
    if not rest and first not in data and isinstance(train, dict) and first in train:
        return f"{TRAIN}.{first}"
    places = list(_places(data))
    if first in SINGULAR and first not in data:
        found = [place for place in places if place.group == SINGULAR[first]]
    elif first in GROUPS and rest:
        found = _called(rest.pop(0), [place for place in places if place.group == first])
    elif tuple(name.split(".")[:2]) == LONG and len(rest) > 1:
        found, rest = _called(rest[1], places), rest[2:]
    elif first not in {*data, *TOP.fields, *TOP.short}:
        found = _called(first, places)
    else:
        return name
    if len(found) > 1 and first in SINGULAR and rest:
        fields = ", ".join(".".join([*place.path, *rest]) for place in found)
        raise BadArgument(f"{name} could be any of {fields}; write more of its path")
    if len(found) != 1 or not rest:
        return name
    is_long = found[0].path[:1] == LONG[:1]
    if is_long and rest[0] != "spec":
        written = [".".join([*found[0].path, *between, *rest]) for between in (UNNAMED, UNNAMED[:1])]
        over_it = ".".join([found[0].group, found[0].names[0], *rest])  # the short form, expanded over the long one
        return next((path for path in written if path in known), over_it)
    rest = rest if is_long else [key for place, key in enumerate(rest) if place or key != "spec"]
    return ".".join([*found[0].path, *rest])


def _called(name: str, places: Iterable[Place]) -> list[Place]:
    """Return the places of a name; if there are none, those that are also called so."""
    places = list(places)
    return [place for place in places if place.names[0] == name] or [place for place in places if name in place.names]


def _places(data: Mapping[str, Any]) -> Iterator[Place]:
    """Yield where the parts of a config are defined, in any form."""
    for key, group in SINGULAR.items():
        if key in data:
            yield Place(group, _names(key, data[key]), (key,))
    for group in GROUPS:
        for name, spec in _items(data.get(group)):
            yield Place(group, _names(name, spec), (group, name))
    initialize = data.get(LONG[0])
    for name, entry in _items(initialize.get(LONG[1]) if isinstance(initialize, dict) else None):
        if isinstance(entry, dict) and isinstance(entry.get("group"), str):
            yield Place(entry["group"], _names(name, entry.get("spec")), (*LONG, name))


def _names(name: str, spec: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys([name, *filter(None, [named_by_class(spec)])]))


def shortened(path: str) -> str:
    """Return a path without the keys that forms differ in."""
    keys = path.split(".")
    keys = keys[len(LONG) :] if tuple(keys[: len(LONG)]) == LONG else keys
    return ".".join(key for key in keys if key not in UNNAMED)
