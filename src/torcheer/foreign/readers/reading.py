"""What a reader is given: the files that it may open, as memory, and what reading may cost."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from torcheer.disk import strict_json
from torcheer.errors import ArchiveDamaged
from torcheer.foreign.readers.budget import Budget
from torcheer.foreign.request import Request

_MOST_FILES: Final = 10_000
_MOST_TEXT: Final = 500
BLOB: Final = -1  # in place of a file: the bytes that a reader made itself


class Reading:
    """One reading: the files that were opened, by their numbers, and the bytes that are sent along with the answer."""

    def __init__(self, request: Request, open_file: Callable[[str], int]) -> None:
        """`open_file`: gives the descriptor of a file beside the one that is read."""
        self.name, self.names, self.part = request.name, request.names, request.part
        self.budget, self.blob = Budget(), bytearray()
        self.files: list[str] = []
        self._open_file, self._maps = open_file, list[memoryview]()

    def file(self, name: str) -> int:
        """Open a file and return its number; raises where it is not there, or leads out of the folder."""
        if name not in self.files:
            self.budget.spend("steps", 1000, "its list of files")
            if len(self.files) >= _MOST_FILES:
                raise ArchiveDamaged(f"it names more than {_MOST_FILES:,} files")
            descriptor = self._open_file(name)
            try:
                size = os.fstat(descriptor).st_size
                mapped: Any = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
            finally:
                os.close(descriptor)
            self.files.append(name)
            self._maps.append(memoryview(mapped))
        return self.files.index(name)

    def release(self, number: int) -> None:
        """Let a file go that has been read: a run may have thousands."""
        self._maps[number] = memoryview(b"")

    def data(self, number: int) -> memoryview:
        """The bytes of a file; only what is looked at comes into memory."""
        return self._maps[number]

    def read(self, number: int, begin: int = 0, end: int | None = None) -> bytes:
        """Some bytes of a file, brought into memory."""
        part = self._maps[number][begin:end]
        self.budget.spend("bytes", len(part), self.files[number])
        return bytes(part)

    def keep(self, data: Any) -> tuple[int, int]:
        """Add bytes to those that are sent with the answer, and return where they begin and end."""
        data = data.tobytes() if hasattr(data, "tobytes") else data
        self.budget.spend("bytes", len(data), self.name)
        begin = len(self.blob)
        self.blob += data
        return begin, len(self.blob)

    def json(self, data: bytes, where: str) -> Any:
        """The value of a JSON text; what it takes in memory is counted before."""
        self.budget.spend("bytes", 8 * len(data), where)
        return strict_json(data, where)


def place_of(part: memoryview, whole: memoryview) -> int:
    """Where a part of memory begins in the whole."""
    if not len(part):
        return 0
    first, start = (np.frombuffer(each, np.uint8).__array_interface__["data"][0] for each in (part, whole))
    return int(first - start)


def plain_text(value: Any) -> str:
    """A value of a file's metadata as short text."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}… ({len(text):,} characters)"
