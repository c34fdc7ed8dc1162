"""Frames of functions: what ran outside the model's calls belongs to the function that called it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torcheer.records import ModuleCall, Op, RunInfo

INNER = re.compile(r"(\.<locals>\.<\w+>)+$")  # comprehensions and lambdas belong to the function around them
FUNCTION = "function"  # the type of a frame, where a module has its class
Frames = dict[int, tuple[ModuleCall, ...]]  # op -> the calls of functions around it, outermost first


@dataclass(slots=True)
class _Frame:
    """One call of a function, as far as its operations tell."""

    function: tuple[str, str]  # its file and name
    line: int  # of its first operation, and the instruction
    site: tuple[Any, ...]
    start: int  # indices of its first and last operation
    end: int

    def goes_on_at(self, line: int, site: tuple[Any, ...]) -> bool:
        """Whether an operation belongs to this call: a new call begins at or before its first instruction."""
        if site[:2] == self.site[:2] and site[:1] == self.function[:1]:
            return bool(site[2] > self.site[2])
        return line >= self.line  # torch's own code called one of them, or a comprehension


def function_frames(ops: Sequence[Op], info: RunInfo) -> Frames:
    """Return the functions around each operation outside the model's calls, outermost first.

    Only the innermost function of an operation is known: a function stands around another if it goes on after it. A
    call of the model ends all frames, so that a loop around the model does not hide it. The function that began the
    recording is no frame, nor is a `forward`, nor a call with a single operation.
    """
    frames: list[_Frame] = []
    open_frames: list[_Frame] = []
    for op in ops:
        if op.modules or op.root_call or op.kind not in ("op", "alias") or op.source is None:
            if op.modules or op.root_call:
                open_frames.clear()
            continue
        name = INNER.sub("", op.source.function)
        if name in ("", info.caller) or name.startswith("<") or name.rpartition(".")[2] == "forward":
            open_frames.clear()
            continue
        function = (op.source.file, name)
        depth = next((n for n, frame in enumerate(open_frames) if frame.function == function), len(open_frames))
        if depth < len(open_frames) and open_frames[depth].goes_on_at(op.source.line, op.site):
            open_frames[depth].end = op.index
            del open_frames[depth + 1 :]
        else:
            del open_frames[depth:]
            open_frames.append(_Frame(function, op.source.line, op.site, op.index, op.index))
            frames.append(open_frames[-1])
    around: Frames = {}
    calls: dict[str, int] = {}
    for frame in frames:  # outer frames begin before inner ones
        if frame.end > frame.start:
            name = frame.function[1].rpartition("<locals>.")[2]
            calls[name] = calls.get(name, 0) + 1
            call = ModuleCall(name, calls[name], FUNCTION)
            for index in range(frame.start, frame.end + 1):
                around[index] = (*around.get(index, ()), call)
    return around
