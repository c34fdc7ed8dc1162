"""Schema types for config values, and validation by walking a description.

Walking yields three kinds of findings: faults, references to definitions, and names of code. The same kinds write
themselves as JSON Schema, for editors, and in words, for the config reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.terminal import did_you_mean
from torcheer.training.spec.read.schema_match import JsonSchema, matches

UNSET: Any = object()  # a key without a default


@dataclass(frozen=True)
class Fault:
    """An error at a key path."""

    path: KeyPath
    message: str
    choices: tuple[str, ...] = ()  # valid words


@dataclass(frozen=True)
class NotChecked:
    """Code at a key path of which only an import could tell whether it is right."""

    path: KeyPath
    message: str  # why


@dataclass(frozen=True)
class Reference:
    """The name of a definition, and the group that should have it."""

    path: KeyPath
    group: str
    name: str
    also: str = ""  # another group that may have it


@dataclass(frozen=True)
class CodeName:
    """The name of a class or function, and the slot that says how it is used."""

    path: KeyPath
    slot: str
    name: str


Finding = Fault | Reference | CodeName


class Kind(ABC):
    """The kind of value allowed at a key path."""

    @abstractmethod
    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        """Yield the findings in a value."""

    @abstractmethod
    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        """Return the JSON Schema of such a value; with `partial`, no key is required, as in a config over a session."""

    @abstractmethod
    def in_words(self) -> str:
        """Describe such a value for the reference: "a whole number of 1 or more"."""

    def inner_kinds(self) -> Sequence[Kind]:
        """The kinds that this one is made of."""
        return ()


@dataclass(frozen=True)
class Value(Kind):
    """A single value, such as a text or a number."""

    words: str  # "a whole number of 1 or more"
    schema: JsonSchema
    choices: tuple[str, ...] = ()
    also: Callable[[Any], bool] | None = None  # what JSON Schema cannot say

    def fits(self, value: Any) -> bool:
        return matches(self.schema, value) and (self.also is None or self.also(value))

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not self.fits(value):
            yield Fault(path, f"this is {describe_value(value)}, and {self.words} is needed here", self.choices)

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        return self.schema

    def in_words(self) -> str:
        return self.words.rstrip(",")


@dataclass(frozen=True)
class Key(Kind):
    """A key of a mapping: the kind of its value, and all that the reference and editors say of it."""

    kind: Kind
    meaning: str  # a sentence without its full stop
    example: Any = UNSET  # a valid value
    default: Any = UNSET  # the value of a key that is left out
    otherwise: str = ""  # in words, where no fixed value stands for a key that is left out

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        return self.kind.walk(value, path)

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        facts: JsonSchema = {"description": f"{self.meaning}."}
        if self.otherwise:
            facts["description"] += f" Left out: {self.otherwise}."
        if self.default is not UNSET:
            facts["default"] = self.default
        if self.example is not UNSET:
            facts["examples"] = [self.example]
        return {**self.kind.json_schema(partial=partial), **facts}

    def in_words(self) -> str:
        return self.kind.in_words()

    def inner_kinds(self) -> Sequence[Kind]:
        return (self.kind,)


@dataclass(frozen=True)
class Ref(Kind):
    """The name of a definition."""

    group: str
    or_empty: bool = False  # "" and null mean none
    none: tuple[str, ...] = ()  # further words that mean none
    also: str = ""  # another group that it may be of

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if self.or_empty and value in ("", None, *self.none):
            return
        if not isinstance(value, str) or not value:
            yield Fault(
                path, f"this is {describe_value(value)}, and the name of one of the {self.group} is needed here"
            )
        else:
            yield Reference(path, self.group, value, self.also)

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        return {"type": ["string", "null"]} if self.or_empty else {"type": "string", "minLength": 1}

    def in_words(self) -> str:
        groups = " or ".join(f"`{group}`" for group in filter(None, (self.group, self.also)))
        what = "a dataset, or part of a split" if self.group == "data" else f"one of the {groups}"
        none = ", ".join(f"`{word}`" for word in ("null", *self.none))
        return f"the name of {what}" + (f", or {none}" if self.or_empty else "")


@dataclass(frozen=True)
class Name(Kind):
    """The name of a class or function."""

    slot: str

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, str) or not value:
            yield Fault(path, f"this is {describe_value(value)}, and the name of a class or function is needed here")
        else:
            yield CodeName(path, self.slot, value)

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        return {"type": "string", "minLength": 1}

    def in_words(self) -> str:
        return "the name of a class or function"


@dataclass(frozen=True)
class ListOf(Kind):
    """A list."""

    item: Kind
    least: int = 0
    is_set: bool = False  # items are unique

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, list):
            yield Fault(path, f"this is {describe_value(value)}, and a list is needed here")
            return
        if len(value) < self.least:
            yield Fault(path, "this list is empty, and something is needed here")
        for number, item in enumerate(value):
            if self.is_set and item in value[:number]:
                yield Fault((*path, number), "this stands in the list twice")
            yield from self.item.walk(item, (*path, number))

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        limits: JsonSchema = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.item.json_schema(partial=partial), **limits} | (
            {"uniqueItems": True} if self.is_set else {}
        )

    def in_words(self) -> str:
        return f"a list, each {self.item.in_words()}"

    def inner_kinds(self) -> Sequence[Kind]:
        return (self.item,)


@dataclass(frozen=True)
class MapOf(Kind):
    """A mapping of free names to values of one kind."""

    item: Kind

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, dict):
            yield Fault(path, f"this is {describe_value(value)}, and a mapping of names is needed here")
            return
        for name, item in value.items():
            if not name.strip():
                yield Fault((*path, name), "a name is a string that is not empty")
            yield from self.item.walk(item, (*path, name))

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        return {"type": "object", "additionalProperties": self.item.json_schema(partial=partial)}

    def in_words(self) -> str:
        return f"a mapping of names, each to {self.item.in_words()}"

    def inner_kinds(self) -> Sequence[Kind]:
        return (self.item,)


@dataclass(frozen=True)
class Schema(Kind):
    """A mapping with a fixed set of keys."""

    label: str  # "a stage", as errors call it
    fields: Mapping[str, Key]
    needs: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()  # exactly one of these
    some_of: tuple[str, ...] = ()  # at least one of these
    older: Mapping[str, str] = field(default_factory=dict)  # keys of older dialects, and ours of the same meaning
    short: Mapping[str, Key] = field(default_factory=dict)  # keys that are expanded before a value is walked

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if not isinstance(value, dict):
            yield Fault(path, f"this is {describe_value(value)}, and {self.label} is a mapping")
            return
        yield from self._keys(value, path)
        for key, kind in self.fields.items():
            if key in value:
                yield from kind.walk(value[key], (*path, key))

    def _keys(self, value: Mapping[str, Any], path: KeyPath) -> Iterator[Finding]:
        for key in value:
            if key not in self.fields:
                # the nearest word to the key, not to its value
                yield Fault((*path, key), f"{self.label} has no key {key!r}.{did_you_mean(key, self._words())}")
        for key in self.needs:
            if key not in value:
                meaning = self.fields[key].meaning
                yield Fault((*path, key), f"{self.label} needs the key {key!r}, which is missing: {meaning}")
        present = [key for key in self.one_of if key in value]
        if self.one_of and len(present) != 1:
            fault = f"has {quote_list(present, 'and')}" if present else "says none of them"
            yield Fault(path, f"{self.label} has one of the keys {quote_list(self.one_of)}, and this one {fault}")
        if self.some_of and not any(key in value for key in self.some_of):
            yield Fault(
                path, f"{self.label} has one of the keys {quote_list(self.some_of)}, and this one says none of them"
            )

    def _words(self) -> tuple[str, ...]:
        return (*self.fields, *self.older, *self.short)

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        properties = {key: field.json_schema(partial=partial) for key, field in {**self.fields, **self.short}.items()}
        for key, ours in self.older.items():
            properties[key] = {**properties[ours], "deprecated": True}
        schema: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False}
        if partial:
            return schema
        rules = [{"anyOf": [{"required": [name]} for name in self._spellings(key)]} for key in self.needs]
        rules += [{choice: [{"required": [key]} for key in keys]}
                  for choice, keys in (("oneOf", self.one_of), ("anyOf", self.some_of)) if keys]  # fmt: skip
        return {**schema, "allOf": rules} if rules else schema

    def _spellings(self, key: str) -> tuple[str, ...]:
        """A key, and its names in older dialects."""
        return (key, *(older for older, ours in self.older.items() if ours == key))

    def in_words(self) -> str:
        return self.label

    def inner_kinds(self) -> Sequence[Kind]:
        return tuple(self.fields.values())


@dataclass(frozen=True)
class Either(Kind):
    """One kind for lists, one for mappings, one for all other values."""

    other: Kind
    of_list: Kind | None = None
    of_map: Kind | None = None

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        kind = self.of_list if isinstance(value, list) else self.of_map if isinstance(value, dict) else self.other
        yield from (kind or self.other).walk(value, path)

    def json_schema(self, *, partial: bool = False) -> JsonSchema:
        return {"anyOf": [kind.json_schema(partial=partial) for kind in self.inner_kinds()]}

    def in_words(self) -> str:
        words = self.other.in_words()
        if " list" in words or "mapping" in words:  # it speaks of all forms, since errors show it
            return words
        return "; or ".join(kind.in_words() for kind in self.inner_kinds())

    def inner_kinds(self) -> Sequence[Kind]:
        return [kind for kind in (self.other, self.of_list, self.of_map) if kind is not None]


def describe_value(value: Any) -> str:
    """Describe the type of a JSON value in words."""
    words = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    if value == "" and isinstance(value, str):
        return "an empty string"
    return words.get(type(value), "a number")


def quote_list(words: Sequence[str], joint: str = "or") -> str:
    """Quote and join words: 'a', 'b' or 'c'."""
    quoted = [repr(word) for word in words]
    return f" {joint} ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
