"""TOML: the values that `tomllib` gives, and the line of each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torcheer.config.line_numbers import DEPTH, Fault, KeyPath, Places

TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?\'{3,5}   # up to two quotes more belong to the text
      | "(?:\\.|[^"\\\n])*" | '[^'\n]*'
      | \#[^\n]* | \n | [\[\]{}=,.]
      | [^\s\[\]{}=,."'\#]+''',
    re.VERBOSE | re.DOTALL,
)
# For a key of n words tomllib keeps n²/2 of them: a megabyte of `a.a.a.…` would take all memory there is.
LONG_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*((?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){""" + f"{DEPTH}}})", re.MULTILINE
)
AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def parse(text: str) -> tuple[Any, Places]:
    """What a TOML text says, and the line of each value."""
    if long := LONG_KEY.search(text):
        raise Places(text).fault(f"nested more than {DEPTH} levels deep", long.start(1))
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        wrong = fault(str(error), text)
        if re.match("Cannot|Duplicate", str(error)):
            find_twice(text, wrong.line)
        raise wrong from None
    walk = Walk(text)
    walk.document()
    return plain(data), walk.places


def fault(message: str, text: str) -> Fault:
    """tomllib says the place in words."""
    found = AT.search(message)
    if found is None:
        return Fault(message)
    message = message[: found.start()]
    if found[1] is None:
        return Places(text).fault(f"{message}, at the end of the file", len(text.rstrip("\n")))
    return Fault(message, int(found[1]), int(found[2]))


def find_twice(text: str, last: int) -> None:
    """Raise about a key that is given twice: tomllib names neither it nor the first of its lines."""
    with suppress(ValueError):  # up to the second key the text is sound, and after it anything may stand
        Walk("\n".join(text.split("\n")[:last])).document()


def plain(value: Any) -> Any:
    """Dates and times become texts, as they would be in JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float) else value.isoformat()


class Walk:
    """One pass over the tokens of a text that is known to be TOML, up to a key that is given twice."""

    def __init__(self, text: str) -> None:
        self.places = Places(text)
        self.tokens = tokens(text)
        self.token, self.index = "", 0
        self.tables: dict[KeyPath, int] = {}  # how many tables each [[name]] has so far
        self.given: dict[KeyPath, int] = {}  # the line on which a key or [table] is written out
        self.step()

    def step(self) -> str:
        """The token that is passed; `self.token` is the next one, "" at the end."""
        passed = self.token
        self.token, self.index = next(self.tokens, ("", self.index))
        return passed

    def document(self) -> None:
        table: KeyPath = ()
        self.places.put((), 0)
        while self.token:
            if self.token == "\n":
                self.step()
            elif self.token == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> KeyPath:
        """The table that a [name] or [[name]] opens."""
        index = self.index
        self.step()
        several = self.token == "["
        if several:
            self.step()
        path: KeyPath = ()
        for key in (keys := self.key())[:-1]:
            path = self.inside((*path, key), index)
        path = (*path, keys[-1])
        if several:
            self.tables[path] = self.tables.get(path, 0) + 1
            path = self.inside(path, index)
        else:
            self.give(path, index)
        self.places.put(path, index)
        while self.token == "]":
            self.step()
        return path

    def inside(self, path: KeyPath, index: int) -> KeyPath:
        """Where a table that is passed through is: of several, the last one."""
        if path not in self.places.lines:
            self.places.put(path, index)
        return (*path, self.tables[path] - 1) if path in self.tables else path

    def pair(self, table: KeyPath) -> None:
        index = self.index
        *parents, last = self.key()
        path = table
        for key in parents:
            path = self.inside((*path, key), index)
        self.give((*path, last), index)
        self.step()  # the equals sign
        self.value((*path, last))

    def give(self, path: KeyPath, index: int) -> None:
        if path in self.given:
            raise self.places.twice(".".join(map(str, path)), index, self.given[path])
        self.given[path] = self.places.line(index)

    def key(self) -> list[str]:
        keys = [name(self.step())]
        while self.token == ".":
            self.step()
            keys.append(name(self.step()))
        return keys

    def value(self, path: KeyPath) -> None:
        self.places.put(path, self.index)
        first = self.step()
        if first == "[":
            self.items(path)
        elif first == "{":
            self.pairs(path)
        while self.token not in ("", "\n", ",", "]", "}"):  # 1.5 and a date are several tokens
            self.step()

    def items(self, path: KeyPath) -> None:
        position = 0
        while self.token not in ("", "]"):
            if self.token in ("\n", ","):
                self.step()
            else:
                self.value((*path, position))
                position += 1
        self.step()

    def pairs(self, path: KeyPath) -> None:
        while self.token not in ("", "}"):
            if self.token in ("\n", ","):
                self.step()
            else:
                self.pair(path)
        self.step()


def tokens(text: str) -> Iterator[tuple[str, int]]:
    return ((match[0], match.start()) for match in TOKEN.finditer(text) if not match[0].startswith("#"))


def name(token: str) -> str:
    """A key as it is meant: quotes and escapes undone."""
    return str(tomllib.loads(f"key = {token}")["key"]) if token[:1] in ('"', "'") else token
