"""TOML parser: the values of `tomllib`, and the line of each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torcheer.config.line_numbers import MAX_DEPTH, KeyPath, LineMap, TextFault

TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?\'{3,5}   # up to two further quotes belong to the text
      | "(?:\\.|[^"\\\n])*" | '[^'\n]*'
      | \#[^\n]* | \n | [\[\]{}=,.]
      | [^\s\[\]{}=,."'\#]+''',
    re.VERBOSE | re.DOTALL,
)
# For a key of n words tomllib stores n²/2 of them: a megabyte of `a.a.a.…` would exhaust memory.
LONG_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*((?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){""" + f"{MAX_DEPTH}}})", re.MULTILINE
)
POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def parse(text: str) -> tuple[Any, LineMap]:
    """Parse a TOML text; return its value and the line of each part."""
    if long_key := LONG_KEY.search(text):
        raise LineMap(text).fault(f"nested more than {MAX_DEPTH} levels deep", long_key.start(1))
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        fault = parse_fault(str(error), text)
        if re.match("Cannot|Duplicate", str(error)):
            raise_duplicate_key(text, fault.line)
        raise fault from None
    walk = TomlWalker(text)
    walk.document()
    return dates_to_text(data), walk.line_map


def parse_fault(message: str, text: str) -> TextFault:
    """Parse the position out of tomllib's message."""
    position = POSITION.search(message)
    if position is None:
        return TextFault(message)
    message = message[: position.start()]
    if position[1] is None:
        return LineMap(text).fault(f"{message}, at the end of the file", len(text.rstrip("\n")))
    return TextFault(message, int(position[1]), int(position[2]))


def raise_duplicate_key(text: str, last: int) -> None:
    """Raise for a duplicate key: tomllib names neither the key nor its first line."""
    with suppress(ValueError):  # the text is valid up to the second key only
        TomlWalker("\n".join(text.split("\n")[:last])).document()


def dates_to_text(value: Any) -> Any:
    """Convert dates and times to texts, as they would be in JSON."""
    if isinstance(value, dict):
        return {key: dates_to_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [dates_to_text(item) for item in value]
    return value if isinstance(value, str | int | float) else value.isoformat()


class TomlWalker:
    """One pass over the tokens of a TOML text that is valid up to a duplicate key."""

    def __init__(self, text: str) -> None:
        self.line_map = LineMap(text)
        self.tokens = tokenize(text)
        self.token, self.index = "", 0
        self.tables: dict[KeyPath, int] = {}  # how many tables each [[name]] has so far
        self.defined: dict[KeyPath, int] = {}  # the line that defines each key or [table]
        self.advance()

    def advance(self) -> str:
        """Move to the next token, "" at the end; return the one before."""
        previous = self.token
        self.token, self.index = next(self.tokens, ("", self.index))
        return previous

    def document(self) -> None:
        table: KeyPath = ()
        self.line_map.add((), 0)
        while self.token:
            if self.token == "\n":
                self.advance()
            elif self.token == "[":
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> KeyPath:
        """Walk a [name] or [[name]]; return the path of the table it opens."""
        index = self.index
        self.advance()
        is_array = self.token == "["
        if is_array:
            self.advance()
        path: KeyPath = ()
        for key in (keys := self.key())[:-1]:
            path = self.enter_table((*path, key), index)
        path = (*path, keys[-1])
        if is_array:
            self.tables[path] = self.tables.get(path, 0) + 1
            path = self.enter_table(path, index)
        else:
            self.define(path, index)
        self.line_map.add(path, index)
        while self.token == "]":
            self.advance()
        return path

    def enter_table(self, path: KeyPath, index: int) -> KeyPath:
        """Return the path of a parent table; of an array of tables, the last one."""
        if path not in self.line_map.lines:
            self.line_map.add(path, index)
        return (*path, self.tables[path] - 1) if path in self.tables else path

    def pair(self, table: KeyPath) -> None:
        index = self.index
        *parents, last = self.key()
        path = table
        for key in parents:
            path = self.enter_table((*path, key), index)
        self.define((*path, last), index)
        self.advance()  # the equals sign
        self.value((*path, last))

    def define(self, path: KeyPath, index: int) -> None:
        if path in self.defined:
            raise self.line_map.duplicate_key(".".join(map(str, path)), index, self.defined[path])
        self.defined[path] = self.line_map.line(index)

    def key(self) -> list[str]:
        keys = [unquote_key(self.advance())]
        while self.token == ".":
            self.advance()
            keys.append(unquote_key(self.advance()))
        return keys

    def value(self, path: KeyPath) -> None:
        self.line_map.add(path, self.index)
        first = self.advance()
        if first == "[":
            self.items(path)
        elif first == "{":
            self.pairs(path)
        while self.token not in ("", "\n", ",", "]", "}"):  # 1.5 and a date are several tokens
            self.advance()

    def items(self, path: KeyPath) -> None:
        position = 0
        while self.token not in ("", "]"):
            if self.token in ("\n", ","):
                self.advance()
            else:
                self.value((*path, position))
                position += 1
        self.advance()

    def pairs(self, path: KeyPath) -> None:
        while self.token not in ("", "}"):
            if self.token in ("\n", ","):
                self.advance()
            else:
                self.pair(path)
        self.advance()


def tokenize(text: str) -> Iterator[tuple[str, int]]:
    return ((match[0], match.start()) for match in TOKEN.finditer(text) if not match[0].startswith("#"))


def unquote_key(token: str) -> str:
    """Remove quotes and escapes from a key."""
    return str(tomllib.loads(f"key = {token}")["key"]) if token[:1] in ('"', "'") else token
