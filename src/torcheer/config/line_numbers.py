"""Where each value of a text stands."""

from __future__ import annotations

import re
from bisect import bisect_left

KeyPath = tuple[str | int, ...]  # ("models", "net", "layers", 0)

DEPTH = 100  # levels: more is no config, and everything that walks one recurses


class Fault(Exception):
    """Something wrong at one place of a text; whoever knows the file turns it into a BadConfig."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column  # from 1; 0 where nothing is known


class Places:
    """The line of each value, gathered while a text is walked."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.remarks: list[Fault] = []  # what is right, and seldom meant
        self.ends = [match.start() for match in re.finditer("\n", text)]

    def put(self, path: KeyPath, index: int) -> None:
        """Remember that the value at `path` starts at the character `index`."""
        if len(path) > DEPTH:
            raise self.fault(f"nested more than {DEPTH} levels deep", index)
        self.lines[path] = self.line(index)

    def line(self, index: int) -> int:
        return bisect_left(self.ends, index) + 1

    def fault(self, message: str, index: int) -> Fault:
        """An error at the character `index`."""
        line = self.line(index)
        start = self.ends[line - 2] + 1 if line > 1 else 0
        return Fault(message, line, index - start + 1)

    def remark(self, message: str, index: int) -> None:
        """Keep something to be said of the character `index`."""
        self.remarks.append(self.fault(message, index))

    def twice(self, key: str, index: int, first: int) -> Fault:
        """The error of a key that stands on the line `first` already."""
        return self.fault(f"the key {key!r} is given twice, first on line {first}", index)
