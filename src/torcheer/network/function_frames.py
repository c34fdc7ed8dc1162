"""Frames of functions: what a function called is drawn in one box, beside the boxes of modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torcheer.records import ModuleCall, Op, RunInfo

INNER = re.compile(r"(\.<locals>\.<\w+>)+$")  # comprehensions and lambdas belong to the function around them
FUNCTION = "function"  # the type of a frame, where a module has its class
Paths = dict[int, tuple[ModuleCall, ...]]  # op -> the calls of modules and functions around it, outermost first


@dataclass(slots=True)
class _Frame:
    """One call of a function, as far as its operations tell."""

    function: tuple[str, str]  # its file and name
    line: int  # of its first operation, and the instruction
    site: tuple[Any, ...]
    start: int  # indices of its first and last operation
    end: int
    computed: int = 0  # its operations that made new values

    def goes_on_at(self, line: int, site: tuple[Any, ...]) -> bool:
        """Whether an operation belongs to this call: a new call begins at or before its first instruction."""
        if site[:2] == self.site[:2] and site[:1] == self.function[:1]:
            return bool(site[2] > self.site[2])
        return line >= self.line  # torch's own code called one of them, or a comprehension


@dataclass(slots=True)
class _ModuleCode:
    """The functions that ran in one call of a module, not in the modules that it called."""

    modules: tuple[ModuleCall, ...]
    outside: bool  # of the model's calls
    has_own: bool = False  # some operation is in no function but its forward
    frames: list[_Frame] = field(default_factory=list)
    open_frames: list[_Frame] = field(default_factory=list)

    def add(self, op: Op, name: str) -> None:
        """Add an operation of a function: to its open frame, or to a new one."""
        assert op.source is not None
        function, open_frames = (op.source.file, name), self.open_frames
        depth = next((n for n, frame in enumerate(open_frames) if frame.function == function), len(open_frames))
        if depth == len(open_frames) or not open_frames[depth].goes_on_at(op.source.line, op.site):
            del open_frames[depth : depth + 1]  # that call is over, and what ran after it was not in it
            depth = len(open_frames)
            open_frames.append(_Frame(function, op.source.line, op.site, op.index, op.index))
            self.frames.append(open_frames[-1])
        open_frames[depth].end = op.index
        open_frames[depth].computed += not op.view
        del open_frames[depth + 1 :]

    def shown(self) -> list[_Frame]:
        """Return the frames worth a box, outer ones before inner ones.

        A call that reshapes only, or of a single operation, is none; nor is a function that does all that its module
        does, as a `_forward` called by the `forward`.
        """
        if self.outside:
            return [frame for frame in self.frames if frame.end > frame.start]
        frames = self.frames
        if not self.has_own and frames and all(frame.end <= frames[0].end for frame in frames):
            frames = frames[1:]
        return [frame for frame in frames if frame.computed > 1]


def paths_with_functions(ops: Sequence[Op], info: RunInfo) -> Paths:
    """Return the modules and functions around each operation that has functions around it, outermost first.

    Only the innermost function of an operation is known: a function stands around another, or around a module, if it
    goes on after it. A call of the model ends what ran outside of it, so that a loop around the model does not hide it.
    The function that began the recording is no frame, nor is a `forward`. What is not recorded is not known: a frame
    begins at the function's first own operation, and two calls in a row are one if the second skips what the first
    began with.
    """
    codes: dict[tuple[int, tuple[ModuleCall, ...]], _ModuleCode] = {}
    outside = _ModuleCode((), True)
    for op in ops:
        if op.source is None or op.kind not in ("op", "alias"):
            continue
        inside = bool(op.modules or op.root_call)
        if inside and outside.open_frames:
            outside.open_frames.clear()
        name = frame_name(op.source.function)
        if inside and (name or codes):
            code = codes.get((op.root_call, op.modules)) or _ModuleCode(op.modules, False)
        elif inside:
            continue  # the common case: no function but forwards so far
        else:
            code = outside
        if not name or name == info.caller:
            code.open_frames.clear()
            continue
        code.add(op, name)
        if inside:
            codes[op.root_call, op.modules] = code
    if codes:
        for key in {(op.root_call, op.modules) for op in ops if op.source and not frame_name(op.source.function)}:
            if key in codes:
                codes[key].has_own = True
    return _paths([outside, *codes.values()], ops, info.model)


@cache
def frame_name(function: str) -> str:
    """Return the function whose frame an operation is in; "" for a script or a `forward`."""
    name = INNER.sub("", function)
    return "" if name.startswith("<") or name.rpartition(".")[2] == "forward" else name


def _paths(codes: list[_ModuleCode], ops: Sequence[Op], model: str) -> Paths:
    """Put the frames of each module's code around what ran in it, numbered by their names."""
    frames = [(frame.start, -frame.end, code, frame) for code in codes for frame in code.shown()]
    around: dict[int, list[tuple[int, ModuleCall]]] = {}  # with the number of modules around the function
    calls: dict[str, int] = {}
    for start, end, code, frame in sorted(frames, key=lambda entry: entry[:2]):
        module = code.modules[-1] if code.modules else ModuleCall("", 1, "" if code.outside else model)
        name = frame.function[1].rpartition("<locals>.")[2].removeprefix(f"{module.type}.")
        address = f"{module.address}.{name}" if module.address else name
        calls[address] = calls.get(address, 0) + 1
        entry = len(code.modules), ModuleCall(address, calls[address], FUNCTION)
        for index in range(start, 1 - end):
            around.setdefault(index, []).append(entry)
    paths: Paths = {}
    last: tuple[Any, Any] = (None, None)
    for index in sorted(around):
        if last[0] != around[index] or last[1] is not ops[index].modules:
            last = around[index], ops[index].modules
            path = _interleave(ops[index].modules, around[index])
        paths[index] = path  # the same object for neighbours: readers compare by identity first
    return paths


def _interleave(modules: tuple[ModuleCall, ...], entries: list[tuple[int, ModuleCall]]) -> tuple[ModuleCall, ...]:
    """Return a path of modules with functions after the modules that called them."""
    path: list[ModuleCall] = []
    for depth in range(len(modules) + 1):
        path += [call for place, call in entries if place == depth]
        path += modules[depth : depth + 1]
    return tuple(path)
