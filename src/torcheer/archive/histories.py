"""`history.save` and `tl.load`: a history in an archive, its values read when they are asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torcheer.archive.plainly import plain, restored
from torcheer.archive.reader import Archive, Entry
from torcheer.archive.writer import Writer
from torcheer.errors import BadArgument, NotAnArchive, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.records import Op, RunInfo, Sample


def save_history(history: ModelHistory, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a history, with every value and gradient it holds, to a folder that `torcheer.load` reads."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise BadArgument(f"{target} is there already; save elsewhere, or with overwrite=True")
    if overwrite and target.exists() and not (target / "archive.json").is_file():
        raise BadArgument(f"{target} is no archive of ours, and is not overwritten")
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    ops, info = history.trace.ops(), history.trace.info()
    try:
        with Writer(part, about={"kind": "history", "model": info.model}, fsync="step") as writer:
            writer.step(_samples(history, ops), info=plain(info), ops=[plain(op) for op in ops])
        if target.exists():
            shutil.rmtree(target)
        part.replace(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target


def _samples(history: ModelHistory, ops: list[Op]) -> Iterator[Sample]:
    trace = history.trace
    for op in ops:
        for output in range(len(op.outputs)):
            if trace.is_saved(op.index, output):
                yield Sample(0, str(op.index), f"value {output}", -1, trace.value(op.index, output))
            for call, gradient in enumerate(trace.gradients(op.index, output)):
                if gradient is not None:
                    yield Sample(0, str(op.index), f"gradient {output} {call}", -1, gradient)
    for name in trace.info().stored:
        for call, gradient in enumerate(trace.stored_gradients(name)):
            if gradient is not None:
                yield Sample(0, name, f"gradient of parameter {call}", -1, gradient)


def load(path: str | os.PathLike[str]) -> ModelHistory:
    """A history that `history.save` wrote; it prints, draws and compares like a fresh one, and needs no torch."""
    archive = Archive(path)
    if archive.about.get("kind") != "history" or len(archive.frames) != 1:
        raise NotAnArchive(f"{archive.path} is an archive, but not of a history")
    return ModelHistory(SavedTrace(archive))


class SavedTrace:
    """A history's records and values, from an archive."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        about = archive.frames[0].get("about", {})
        self._info: RunInfo = restored(about.get("info"))
        self._ops: list[Op] = restored(about.get("ops"))
        self._places: dict[tuple[str, str], Entry] = {(one.layer, one.variable): one for one in archive.entries}

    def ops(self) -> list[Op]:
        return self._ops

    def info(self) -> RunInfo:
        return self._info

    def is_saved(self, index: int, output: int) -> bool:
        return (str(index), f"value {output}") in self._places

    def value(self, index: int, output: int) -> Any:
        entry = self._places.get((str(index), f"value {output}"))
        if entry is None:
            raise ValueUnavailable("it was not among the values that were saved")
        return self._array(entry)

    def gradients(self, index: int, output: int) -> list[Any]:
        return self._all(str(index), f"gradient {output}")

    def stored_gradients(self, name: str) -> list[Any]:
        return self._all(name, "gradient of parameter")

    def _all(self, layer: str, variable: str) -> list[Any]:
        found: list[Any] = []
        while (entry := self._places.get((layer, f"{variable} {len(found)}"))) is not None:
            found.append(self._array(entry))
        return found

    def stored_value(self, name: str) -> Any:
        raise ValueUnavailable("parameters are not part of a saved history")

    def below(self, index: int) -> list[Op]:
        return []

    def follow(self, reader: Callable[[Op], object]) -> None:
        for op in self._ops:
            reader(op)

    def _array(self, entry: Entry) -> Any:
        """A torch tensor where torch is there, a numpy array elsewhere; a copy, as a file cannot be written to."""
        array = self.archive.array(entry)
        torch = sys.modules.get("torch")
        if torch is None:
            return array
        kind = getattr(torch, entry.type)
        bits = torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8) if entry.stored else torch.empty(0)
        return bits.view(kind).reshape(entry.shape) if entry.stored else torch.empty(entry.shape, dtype=kind)
