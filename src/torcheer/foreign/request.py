"""What is asked of a reader, and what it answers: plain data, which whoever asked checks again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to read."""

    reader: str  # a module of `readers`: "onnx", "events"
    name: str  # of the file or folder
    names: tuple[str, ...] = ()  # of the files in a folder that are to be read
    part: tuple[str, int, int] | None = None  # of a file: its kind, where it begins and ends


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read."""

    body: dict[str, Any]  # as JSON has it
    blob: bytes  # numbers beside it
    files: tuple[str, ...]  # that were opened, by their number in `body`
