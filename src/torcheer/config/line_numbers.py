"""Line numbers of the values in a text."""

from __future__ import annotations

import re
from bisect import bisect_left

KeyPath = tuple[str | int, ...]  # ("models", "net", "layers", 0)

MAX_DEPTH = 100  # levels of nesting: every walk over a config recurses


class TextFault(Exception):
    """An error at a position of a text; `read`, which knows the file, turns it into BadConfig."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column  # from 1; 0 if unknown


class LineMap:
    """Line of each value, recorded while a text is walked."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.ends = [match.start() for match in re.finditer("\n", text)]

    def add(self, path: KeyPath, index: int) -> None:
        """Record that the value at `path` starts at the character `index`."""
        if len(path) > MAX_DEPTH:
            raise self.fault(f"nested more than {MAX_DEPTH} levels deep", index)
        self.lines[path] = self.line(index)

    def line(self, index: int) -> int:
        return bisect_left(self.ends, index) + 1

    def fault(self, message: str, index: int) -> TextFault:
        """Make an error at the character `index`."""
        line = self.line(index)
        start = self.ends[line - 2] + 1 if line > 1 else 0
        return TextFault(message, line, index - start + 1)

    def duplicate_key(self, key: str, index: int, first: int) -> TextFault:
        """Make the error for a duplicate key, first given on the line `first`."""
        return self.fault(f"the key {key!r} is given twice, first on line {first}", index)
