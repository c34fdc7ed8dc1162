"""`history.save` and `tl.load`: a history in an archive, its values read when they are asked for."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from torcheer.archive.format.archive_folder import WritingLock, sync_folder
from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.format.index_frames import no_collecting
from torcheer.archive.format.record_json import from_plain, to_plain
from torcheer.archive.format.tensor_kinds import put_together, taken_apart, whole
from torcheer.archive.format.value_codecs import Codec
from torcheer.encoding import refusal
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.records import ModuleRun, Op, RunInfo, Sample
from torcheer.terminal import plural


def save_history(
    history: ModelHistory,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parameters: bool = False,
    codec: Codec = "raw",
) -> Path:
    """Write a history, with every value and gradient it holds, to a folder that `torcheer.load` reads.

    `parameters=True` keeps the values of parameters and buffers too. A value that cannot be kept, a shard of a
    distributed tensor for example, is left out: a warning names it, and so does the loaded history.
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
        left_out = _write(history, part, parameters, codec)
        _put_in_place(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if text := left_out_text(history.trace.ops(), left_out):
        warnings.warn(f"history.save: {text}", RuntimeWarning, stacklevel=3)  # past the door of the history
    return Path(path)


@no_collecting()
def _write(history: ModelHistory, part: Path, parameters: bool, codec: Codec) -> dict[str, str]:
    """Write everything; what was left out, and why."""
    trace, left_out, composites = history.trace, dict[str, str](), dict[str, list[Any]]()
    ops, info, runs = trace.ops(), trace.info(), trace.runs()
    below = [inner for op in ops for inner in trace.below(op.index)]
    about = {"kind": "history", "model": info.model, "parameters": parameters}
    with Writer(part, about=about, fsync="step", codec=codec) as writer:
        samples = _samples(history, ops, left_out, composites, parameters)
        records = to_plain(info, ops, below, runs)
        writer.step(samples, **records, left_out=left_out, composites=composites)  # filled while samples are written
    return left_out


def _put_in_place(part: Path, target: Path) -> None:
    """Rename; what was there before goes only once the new one stands."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    part.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _samples(
    history: ModelHistory,
    ops: list[Op],
    left_out: dict[str, str],
    composites: dict[str, list[Any]],
    parameters: bool,
) -> Iterator[Sample]:
    for layer, variable, value in _values(history, ops, parameters):
        key = f"{layer} {variable}"
        if value is None or isinstance(value, Missing):
            left_out[key] = "" if value is None else value.reason
            continue
        try:
            found = whole(value)
            composite = taken_apart(found)
            reason = "" if composite is not None else refusal(found)
        except Exception as error:  # a subclass of somebody's, which nobody here knows
            reason = f"a {type(value).__name__} cannot be kept: {error}"
        if reason:
            left_out[key] = reason
        elif composite is None:
            yield Sample(0, layer, variable, -1, found)
        else:
            composites[key] = [composite.kind, list(composite.parts), composite.settings]
            for name, part in composite.parts.items():
                yield Sample(0, layer, f"{variable} {name}", -1, part)


class Missing(NamedTuple):
    """A value that an archive had to leave out when it was saved before."""

    reason: str


def left_out_text(ops: list[Op], left_out: Mapping[str, str]) -> str:
    """Which values were left out, in words; those on the meta device never were there."""
    found: dict[str, list[str]] = {}
    for key, reason in left_out.items():
        if reason and " on meta " not in reason:
            layer, _, variable = key.partition(" ")
            name = f"{ops[int(layer)].name} ({layer})" if layer.isdecimal() and int(layer) < len(ops) else layer
            found.setdefault(reason, []).append(f"{variable} of {name}")
    said = []
    for reason, values in found.items():
        more = f" and {len(values) - 3} more" if len(values) > 3 else ""
        said.append(f"{', '.join(values[:3])}{more}: {reason}")
    count = sum(map(len, found.values()))
    return f"{plural(count, 'value')} left out when it was saved. {'; '.join(said)}" if said else ""


def _values(history: ModelHistory, ops: list[Op], parameters: bool) -> Iterator[tuple[str, str, Any]]:
    """Whatever a history holds; None for a backward call that did not reach a value that others reached."""
    trace = history.trace
    for op in ops:
        layer = str(op.index)
        for output in range(len(op.tensors)):
            try:
                yield layer, f"value {output}", trace.value(op.index, output)
            except ValueUnavailable:  # it was not saved
                if reason := getattr(trace, "left_out", {}).get(f"{layer} value {output}"):
                    yield layer, f"value {output}", Missing(reason)
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
        self.left_out = about.get("left_out")
        if not isinstance(self.left_out, dict):
            raise ArchiveDamaged(f"{archive.path} does not say which values were left out")
        self._composites = about.get("composites", {})  # files of 0.1 have none
        if not isinstance(self._composites, dict) or not all(map(_is_composite, self._composites.values())):
            raise ArchiveDamaged(f"{archive.path} does not say what its composite values are made of")
        if text := left_out_text(self._ops, self.left_out):
            notes = [note for note in self._info.notes if " left out when it was saved. " not in note]
            self._info = replace(self._info, notes=(*notes, text))
        self._places: dict[tuple[str, str], Entry] = {(one.layer, one.variable): one for one in archive.entries}
        self._tensors: dict[Entry, Any] = {}
        for number in {entry.segment for entry in archive.entries if entry.stored}:
            archive.mapped(number)  # now: another history may be saved over this one

    def ops(self) -> list[Op]:
        return self._ops

    def info(self) -> RunInfo:
        return self._info

    def is_saved(self, index: int, output: int) -> bool:
        return (str(index), f"value {output}") in self._places or f"{index} value {output}" in self._composites

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
        if entry is not None:
            return self._array(entry)
        composite = self._composites.get(f"{layer} {variable}")
        if composite is None:
            raise ValueUnavailable(self.left_out.get(f"{layer} {variable}") or otherwise)
        kind, names, settings = composite
        parts = {name: self._one(layer, f"{variable} {name}", f"its part {name!r} is not there") for name in names}
        return put_together(kind, parts, settings)

    def _all(self, layer: str, variable: str) -> list[Any]:
        found: list[Any] = []
        for call in count():
            name = f"{variable} {call}"
            key = f"{layer} {name}"
            if self.left_out.get(key) == "":
                found.append(None)  # that backward call did not reach it
            elif (layer, name) in self._places or key in self.left_out or key in self._composites:
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


def _is_composite(found: Any) -> bool:
    """Whether a file's word on a composite value is one: its kind, the names of its parts, its settings."""
    if type(found) is not list or len(found) != 3:
        return False
    kind, names, settings = found
    texts = type(kind) is str and type(names) is list and all(type(name) is str for name in names)
    return texts and type(settings) is dict
