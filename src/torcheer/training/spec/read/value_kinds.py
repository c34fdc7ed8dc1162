"""What may stand at a place of a description, and walking one to see whether it does.

Walking finds three things: what is wrong, which definitions are named, and which code is named.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torcheer.config import nearest
from torcheer.config.line_numbers import KeyPath
from torcheer.config.number_fields import number_in


@dataclass(frozen=True)
class Fault:
    """Something wrong at a place."""

    path: KeyPath
    message: str
    known: tuple[str, ...] = ()  # the words that would have been right


@dataclass(frozen=True)
class Reference:
    """A definition that is named, and the group it is to be in."""

    path: KeyPath
    group: str
    name: str


@dataclass(frozen=True)
class Named:
    """Code that is named, and the slot that says what becomes of it."""

    path: KeyPath
    slot: str
    name: str


Finding = Fault | Reference | Named


class Kind(ABC):
    """What may stand at a place."""

    @abstractmethod
    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        """All that is found in a value."""


@dataclass(frozen=True)
class Value(Kind):
    """A single value, such as a text or a number."""

    words: str  # "a whole number of 1 or more"
    fits: Callable[[Any], bool]
    known: tuple[str, ...] = ()

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not self.fits(value):
            said = f"this is {described(value)}, and {self.words} is needed here"
            yield Fault(path, f"{said}{self._number(value)}", self.known)

    def _number(self, value: Any) -> str:
        """How a number is written that came as a text, where it would be right."""
        for number in (number_in(value, whole=whole) for whole in (False, True)) if isinstance(value, str) else ():
            if number and self.fits(json.loads(number)):
                return f". Write {number}"
        return ""


@dataclass(frozen=True)
class Ref(Kind):
    """The name of a definition."""

    group: str
    or_empty: bool = False  # "" and null stand for none
    none: tuple[str, ...] = ()  # words that do, too

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if self.or_empty and value in ("", None, *self.none):
            return
        if not isinstance(value, str) or not value:
            yield Fault(path, f"this is {described(value)}, and the name of one of the {self.group} is needed here")
        else:
            yield Reference(path, self.group, value)


@dataclass(frozen=True)
class Name(Kind):
    """The name of a class or function."""

    slot: str

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, str) or not value:
            yield Fault(path, f"this is {described(value)}, and the name of a class or function is needed here")
        else:
            yield Named(path, self.slot, value)


@dataclass(frozen=True)
class ListOf(Kind):
    """A list."""

    item: Kind
    least: int = 0
    is_set: bool = False  # nothing stands in it twice

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, list):
            yield Fault(path, f"this is {described(value)}, and a list is needed here")
            return
        if len(value) < self.least:
            yield Fault(path, "this list is empty, and something is needed here")
        for number, item in enumerate(value):
            if self.is_set and item in value[:number]:
                yield Fault((*path, number), "this stands in the list twice")
            yield from self.item.walk(item, (*path, number))


@dataclass(frozen=True)
class MapOf(Kind):
    """Names of the user's own, each with something of one kind."""

    item: Kind

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, dict):
            yield Fault(path, f"this is {described(value)}, and a mapping of names is needed here")
            return
        for name, item in value.items():
            if not name.strip():
                yield Fault((*path, name), "a name is a text that is not empty")
            yield from self.item.walk(item, (*path, name))


@dataclass(frozen=True)
class Shape(Kind):
    """A mapping with keys of ours."""

    what: str  # "a stage", as errors call it
    fields: Mapping[str, Kind]
    needs: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()  # exactly one of these
    some_of: tuple[str, ...] = ()  # at least one of these
    older: tuple[str, ...] = ()  # names of keys in other dialects: near ones are worth naming, too
    refused: Mapping[str, str] = field(default_factory=dict)  # keys that are known, and why they are not taken

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, dict):
            yield Fault(path, f"this is {described(value)}, and {self.what} is a mapping")
            return
        yield from self._keys(value, path)
        for key, kind in self.fields.items():
            if key in value:
                yield from kind.walk(value[key], (*path, key))

    def _keys(self, value: Mapping[str, Any], path: KeyPath) -> Iterator[Finding]:
        for key in value:
            if key in self.refused:
                yield Fault((*path, key), self.refused[key])
            elif key not in self.fields:
                # the nearest word to the key, not to the value that stands there
                yield Fault((*path, key), f"{self.what} has no key {key!r}.{nearest(key, self._words())}")
        for key in self.needs:
            if key not in value:
                yield Fault((*path, key), f"{self.what} needs the key {key!r}, which is missing")
        found = [key for key in self.one_of if key in value]
        if self.one_of and len(found) != 1:
            said = f"has {listed(found, 'and')}" if found else "says none of them"
            yield Fault(path, f"{self.what} has one of the keys {listed(self.one_of)}, and this one {said}")
        if self.some_of and not any(key in value for key in self.some_of):
            yield Fault(path, f"{self.what} has one of the keys {listed(self.some_of)}, and this one says none of them")

    def _words(self) -> tuple[str, ...]:
        return (*self.fields, *self.older)


@dataclass(frozen=True)
class Either(Kind):
    """One kind for lists, one for mappings, one for all else."""

    other: Kind
    of_list: Kind | None = None
    of_map: Kind | None = None

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        kind = self.of_list if isinstance(value, list) else self.of_map if isinstance(value, dict) else self.other
        yield from (kind or self.other).walk(value, path)


def described(value: Any) -> str:
    """What a value of JSON is, in words."""
    words = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    if value == "" and isinstance(value, str):
        return "an empty text"
    return words.get(type(value), "a number")


def listed(words: Sequence[str], joint: str = "or") -> str:
    """'a', 'b' or 'c'."""
    quoted = [repr(word) for word in words]
    return f" {joint} ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
