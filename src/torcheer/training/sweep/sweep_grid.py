"""The grid of a sweep: what KEY=VALUE,VALUE arguments mean in a config, and a trial for each combination."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torcheer.config import Config
from torcheer.config.overrides import parse_value
from torcheer.errors import BadArgument

_MOST_NAME = 120  # characters of a folder's name
_PAIRS = {"[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Axis:
    """One swept field."""

    name: str  # as it was typed, and as trials are named by: "lr"
    key: str  # its path in the config: "initialize.definitions.adam.spec.kwargs.lr"
    values: tuple[str, ...]  # as `torcheer train` takes them


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of values."""

    name: str  # of its folder: "lr=0.001,width=8"
    values: Mapping[str, str]  # by the names of the axes
    changes: tuple[str, ...]  # KEY=VALUE, with whole keys


def parse_axes(arguments: Sequence[str], config: Config) -> list[Axis]:
    """Parse KEY=VALUES arguments, and find the field that each key means."""
    if not arguments:
        raise BadArgument("say what to vary, such as lr=1e-3,1e-4")
    from torcheer.training.spec.read.key_addresses import known_key, refuse_word, single_values

    known = dict(single_values(config.data))
    axes: list[Axis] = []
    for argument in arguments:
        name, equals, text = argument.partition("=")
        values = tuple(split_values(text))
        if not equals or not name or not all(values):
            raise BadArgument(f"{argument!r}: write it as KEY=VALUE,VALUE, such as lr=1e-3,1e-4")
        parsed = [json.dumps(parse_value(value, argument)) for value in values]  # 0.1 and 1e-1 are one value
        if twice := next((value for place, value in enumerate(values) if parsed[place] in parsed[:place]), ""):
            raise BadArgument(f"{argument!r}: {twice} is given twice")
        axes.append(Axis(name, known_key(name, config), values))
        for value in values:
            refuse_word(name, value, known.get(axes[-1].key))
    keys = [axis.key for axis in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), ""):
        raise BadArgument(f"{twice} is varied twice; give all its values in one argument")
    if "session_dir" in keys:
        raise BadArgument("each trial has a folder of its own in --to; session_dir cannot be varied")
    return axes


def split_values(text: str) -> Iterator[str]:
    """Split at commas, but not inside brackets or quotes: '[1,2],[3]' is two values."""
    start, closing, quoted = 0, list[str](), False
    for place, character in enumerate(text):
        if character == '"' and text[place - 1 : place] != "\\":
            quoted = not quoted
        elif not quoted and character in _PAIRS:
            closing.append(_PAIRS[character])
        elif not quoted and closing and character == closing[-1]:
            closing.pop()
        elif character == "," and not quoted and not closing:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def trials_of(axes: Sequence[Axis]) -> list[Trial]:
    """Return a trial for each combination of values, the last axis varying fastest."""
    trials = []
    for values in itertools.product(*(axis.values for axis in axes)):
        named = {axis.name: value for axis, value in zip(axes, values, strict=True)}
        changes = tuple(f"{axis.key}={value}" for axis, value in zip(axes, values, strict=True))
        trials.append(Trial(_folder_name(named), named, changes))
    return trials


def _folder_name(values: Mapping[str, str]) -> str:
    name = ",".join(f"{key}={value}" for key, value in values.items())
    safe = re.sub(r"[^\w.=,+\-\[\]]", "_", name)
    if safe == name and len(name) <= _MOST_NAME:
        return name
    return f"{safe[:_MOST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
