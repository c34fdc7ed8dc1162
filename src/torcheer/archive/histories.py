"""`history.save` and `tl.load`: a history in an archive, its values read when they are asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from torcheer.archive.codecs import Codec
from torcheer.archive.folder import WritingLock, sync_folder
from torcheer.archive.frames import no_collecting
from torcheer.archive.plainly import from_plain, to_plain
from torcheer.archive.reader import Archive, Entry
from torcheer.archive.writer import Writer
from torcheer.encoding import refusal
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.records import ModuleRun, Op, RunInfo, Sample


def save_history(
    history: ModelHistory,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parameters: bool = False,
    codec: Codec = "raw",
) -> Path:
    """Write a history, with every value and gradient it holds, to a folder that `torcheer.load` reads.

    `parameters=True` keeps the values of parameters and buffers too. A value that cannot be kept, a sparse one for
    example, is left out, and says so when it is asked for.
    """
    target = Path(os.path.realpath(path))  # a link leads to the folder that is replaced
    if target.exists() and not overwrite:
        raise BadArgument(f"{target} is there already; save elsewhere, or with overwrite=True")
    if overwrite and target.exists() and not (target / "archive.json").is_file():
        raise BadArgument(f"{target} is no archive of ours, and is not overwritten")
    part = target.with_name(f".{target.name}.part")
    if part.exists():
        WritingLock(part).release()  # raises while somebody is saving there
        shutil.rmtree(part)
    try:
        _write(history, part, parameters, codec)
        _put_in_place(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return Path(path)


@no_collecting()
def _write(history: ModelHistory, part: Path, parameters: bool, codec: Codec) -> None:
    trace, left_out = history.trace, dict[str, str]()
    ops, info, runs = trace.ops(), trace.info(), trace.runs()
    below = [inner for op in ops for inner in trace.below(op.index)]
    about = {"kind": "history", "model": info.model, "parameters": parameters}
    with Writer(part, about=about, fsync="step", codec=codec) as writer:
        samples = _samples(history, ops, left_out, parameters)
        writer.step(
            samples, **to_plain(info, ops, below, runs), left_out=left_out
        )  # filled while the samples are written


def _put_in_place(part: Path, target: Path) -> None:
    """Rename; what was there before goes only once the new one stands."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    part.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _samples(history: ModelHistory, ops: list[Op], left_out: dict[str, str], parameters: bool) -> Iterator[Sample]:
    for layer, variable, array in _values(history, ops, parameters):
        reason = "" if array is None else refusal(array)
        if array is None or reason:
            left_out[f"{layer} {variable}"] = reason
        else:
            yield Sample(0, layer, variable, -1, array)


def _values(history: ModelHistory, ops: list[Op], parameters: bool) -> Iterator[tuple[str, str, Any]]:
    """Whatever a history holds; None for a backward call that did not reach a value that others reached."""
    trace = history.trace
    for op in ops:
        layer = str(op.index)
        for output in range(len(op.tensors)):
            try:
                yield layer, f"value {output}", trace.value(op.index, output)
            except ValueUnavailable:
                pass  # it was not saved
            for call, gradient in enumerate(trace.gradients(op.index, output)):
                yield layer, f"gradient {output} {call}", gradient
    for name in trace.info().stored:
        for call, gradient in enumerate(trace.stored_gradients(name)):
            yield name, f"gradient of parameter {call}", gradient
        if parameters:
            yield name, "stored", trace.stored_value(name)


@no_collecting()
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
        about = archive.frames[0]["about"]
        self._info, self._ops, below, self._runs = from_plain(about)
        self._below: dict[int, list[Op]] = {}
        for op in below:
            self._below.setdefault(op.under, []).append(op)
        self._left_out = about.get("left_out")
        if not isinstance(self._left_out, dict):
            raise ArchiveDamaged(f"{archive.path} does not say which values were left out")
        self._places: dict[tuple[str, str], Entry] = {(one.layer, one.variable): one for one in archive.entries}
        self._tensors: dict[Entry, Any] = {}
        for number in {entry.segment for entry in archive.entries if entry.stored}:
            archive.mapped(number)  # now: another history may be saved over this one

    def ops(self) -> list[Op]:
        return self._ops

    def info(self) -> RunInfo:
        return self._info

    def is_saved(self, index: int, output: int) -> bool:
        return (str(index), f"value {output}") in self._places

    def value(self, index: int, output: int) -> Any:
        return self._one(str(index), f"value {output}", "it was not among the values that were saved")

    def gradients(self, index: int, output: int) -> list[Any]:
        return self._all(str(index), f"gradient {output}")

    def stored_gradients(self, name: str) -> list[Any]:
        return self._all(name, "gradient of parameter")

    def stored_value(self, name: str) -> Any:
        return self._one(name, "stored", "parameters were not saved; history.save(path, parameters=True) keeps them")

    def below(self, index: int) -> list[Op]:
        return self._below.get(index, [])

    def runs(self) -> list[ModuleRun]:
        return self._runs

    def follow(self, reader: Callable[[Op], object]) -> None:
        for op in self._ops:
            reader(op)

    def _one(self, layer: str, variable: str, otherwise: str) -> Any:
        entry = self._places.get((layer, variable))
        if entry is None:
            raise ValueUnavailable(self._left_out.get(f"{layer} {variable}") or otherwise)
        return self._array(entry)

    def _all(self, layer: str, variable: str) -> list[Any]:
        found: list[Any] = []
        for call in count():
            name = f"{variable} {call}"
            if self._left_out.get(f"{layer} {name}") == "":
                found.append(None)  # that backward call did not reach it
            elif (layer, name) in self._places or f"{layer} {name}" in self._left_out:
                found.append(self._one(layer, name, ""))
            else:
                return found
        raise AssertionError("there is always a next number")

    def _array(self, entry: Entry) -> Any:
        """A torch tensor where torch is there, a numpy array elsewhere."""
        torch = sys.modules.get("torch")
        if torch is None:
            return self.archive.array(entry)
        held = self._tensors.get(entry)
        if held is not None and not held._version:
            return held
        with torch.inference_mode(False), torch._C.DisableTorchFunction():  # whoever looks may be recording
            made = self._tensor(torch, entry, again=held is not None)
        if entry.codec == "raw":
            self._tensors.setdefault(entry, made)  # the one over the file's memory: has it been written to?
        return made

    def _tensor(self, torch: Any, entry: Entry, again: bool) -> Any:
        kind = getattr(torch, entry.type)
        if not entry.stored:
            return torch.empty(entry.shape, dtype=kind)
        return torch.frombuffer(self.archive.memory(entry, again=again), dtype=kind).reshape(entry.shape)
