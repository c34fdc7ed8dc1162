"""`history.save` and `tl.load`: a history in an archive, whose values are read lazily."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.format.record_json import history_from_json, history_to_json
from torcheer.archive.format.tensor_kinds import complete_local_tensor, rebuild_tensor, split_tensor
from torcheer.archive.format.value_codecs import Codec
from torcheer.disk import replacing
from torcheer.encoding import refusal
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.history.trace_protocol import Trace
from torcheer.records import ModuleRun, Op, RunInfo, Sample, garbage_collection_off
from torcheer.terminal import plural

BACKWARD_STEPS = ("backward", "steps")  # the layer and variable of the steps of a readable backward pass, as text


def save_history(
    history: ModelHistory,
    to: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parameters: bool = False,
    codec: Codec = "raw",
) -> Path:
    """Save a history with all its values and gradients to the folder `to`, which `torcheer.load` reads.

    `overwrite` replaces an existing archive. `parameters=True` saves the values of parameters and buffers too. `codec`
    compresses values: a name of `value_codecs.CODECS`, or a function from a Sample to one. A value that cannot be
    saved, such as a shard of a distributed tensor, is left out: a warning names it, and so does the loaded history.
    """
    target = Path(os.path.realpath(to))  # a link leads to the folder that is replaced
    _check_replaceable(target, overwrite)
    with replacing(target) as part:
        left_out = _write_archive(history, part, parameters, codec)
        _check_replaceable(target, overwrite)  # another process may have saved there meanwhile
    if text := describe_left_out(history.trace.ops(), left_out):
        warnings.warn(f"history.save: {text}", RuntimeWarning, stacklevel=3)  # the caller of history.save
    return Path(to)


def _check_replaceable(target: Path, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise BadArgument(f"{target} is there already; save elsewhere, or with overwrite=True")
    if target.exists() and not (target / "archive.json").is_file():
        raise BadArgument(f"{target} is no archive of ours, and is not overwritten")


@garbage_collection_off()
def _write_archive(history: ModelHistory, target: Path, parameters: bool, codec: Codec) -> dict[str, str]:
    """Write the whole history; return the values that were left out, with the reasons."""
    trace, left_out, composites = history.trace, dict[str, str](), dict[str, list[Any]]()
    ops, info, runs = trace.ops(), trace.info(), trace.runs()
    below = [inner for op in ops for inner in trace.below(op.index)]
    about = {"kind": "history", "model": info.model, "parameters": parameters}
    with Writer(target, about=about, fsync="step", codec=codec) as writer:
        samples = _samples(history, ops, left_out, composites, parameters)
        records = history_to_json(info, ops, below, runs)
        writer.step(samples, **records, left_out=left_out, composites=composites)  # filled while samples are written
    return left_out


def _samples(
    history: ModelHistory,
    ops: list[Op],
    left_out: dict[str, str],
    composites: dict[str, list[Any]],
    parameters: bool,
) -> Iterator[Sample]:
    for layer, variable, value in _values(history, ops, parameters):
        key = f"{layer} {variable}"
        if value is None or isinstance(value, LeftOutValue):
            left_out[key] = "" if value is None else value.reason
            continue
        try:
            tensor = complete_local_tensor(value)
            composite = split_tensor(tensor)
            reason = "" if composite is not None else refusal(tensor)
        except Exception as error:  # an unknown tensor subclass may raise anything
            reason = f"a {type(value).__name__} cannot be kept: {error}"
        if reason:
            left_out[key] = reason
        elif composite is None:
            yield Sample(0, layer, variable, -1, tensor)
        else:
            composites[key] = [composite.kind, list(composite.parts), composite.settings]
            for name, part in composite.parts.items():
                yield Sample(0, layer, f"{variable} {name}", -1, part)


class LeftOutValue(NamedTuple):
    """A value that was already left out when this history was saved before."""

    reason: str


def describe_left_out(ops: list[Op], left_out: Mapping[str, str]) -> str:
    """Describe which values were left out and why.

    Values on the meta device do not count, they had no data.
    """
    values_by_reason: dict[str, list[str]] = {}
    for key, reason in left_out.items():
        if reason and " on meta " not in reason:
            layer, _, variable = key.partition(" ")
            name = f"{ops[int(layer)].name} ({layer})" if layer.isdecimal() and int(layer) < len(ops) else layer
            values_by_reason.setdefault(reason, []).append(f"{variable} of {name}")
    sentences = []
    for reason, values in values_by_reason.items():
        more = f" and {len(values) - 3} more" if len(values) > 3 else ""
        sentences.append(f"{', '.join(values[:3])}{more}: {reason}")
    count = sum(map(len, values_by_reason.values()))
    return f"{plural(count, 'value')} left out when it was saved. {'; '.join(sentences)}" if sentences else ""


def _values(history: ModelHistory, ops: list[Op], parameters: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield every value as (layer, variable, value).

    None where a backward call did not reach it but others did.
    """
    trace = history.trace
    for op in ops:
        layer = str(op.index)
        for output in range(len(op.tensors)):
            try:
                yield layer, f"value {output}", trace.value(op.index, output)
            except ValueUnavailable:  # it was not saved
                if reason := getattr(trace, "left_out", {}).get(f"{layer} value {output}"):
                    yield layer, f"value {output}", LeftOutValue(reason)
            for call, gradient in enumerate(trace.gradients(op.index, output)):
                yield layer, f"gradient {output} {call}", gradient
    for name in trace.info().stored:
        for call, gradient in enumerate(trace.stored_gradients(name)):
            yield name, f"gradient of parameter {call}", gradient
        if parameters:
            yield name, "stored", trace.stored_value(name)
    if text := trace.backward_text():
        yield *BACKWARD_STEPS, np.frombuffer(text.encode(), np.uint8)


@garbage_collection_off()
def load(path: str | os.PathLike[str]) -> ModelHistory:
    """Load a history that `history.save` wrote.

    It prints, draws and compares like a fresh one, without torch.
    """
    archive = Archive(path)
    if archive.about.get("kind") != "history" or len(archive.frames) != 1:
        raise NotAnArchive(f"{archive.path} is an archive, but not of a history")
    return ModelHistory(SavedTrace(archive))


class SavedTrace(Trace):
    """Records and values of a history, read from an archive."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        about = archive.frames[0]["about"]
        self._info, self._ops, below, self._runs = history_from_json(about)
        self._below: dict[int, list[Op]] = {}
        for op in below:
            self._below.setdefault(op.under, []).append(op)
        self.left_out = about.get("left_out")
        if not isinstance(self.left_out, dict):
            raise ArchiveDamaged(f"{archive.path} does not say which values were left out")
        self._composites = about.get("composites", {})  # files of 0.1 have none
        if not isinstance(self._composites, dict) or not all(map(_is_composite, self._composites.values())):
            raise ArchiveDamaged(f"{archive.path} does not say what its composite values are made of")
        if text := describe_left_out(self._ops, self.left_out):
            notes = [note for note in self._info.notes if " left out when it was saved. " not in note]
            self._info = replace(self._info, notes=(*notes, text))
        self._entries: dict[tuple[str, str], Entry] = {
            (entry.layer, entry.variable): entry for entry in archive.entries
        }
        self._tensors: dict[Entry, Any] = {}
        for number in {entry.segment for entry in archive.entries if entry.stored}:
            archive.mapped(number)  # map it now: another history may be saved over this one

    def ops(self) -> list[Op]:
        return self._ops

    def info(self) -> RunInfo:
        return self._info

    def is_saved(self, index: int, output: int) -> bool:
        return (str(index), f"value {output}") in self._entries or f"{index} value {output}" in self._composites

    def value(self, index: int, output: int) -> Any:
        return self._value(str(index), f"value {output}", "it was not among the values that were saved")

    def gradients(self, index: int, output: int) -> list[Any]:
        return self._gradients(str(index), f"gradient {output}")

    def stored_gradients(self, name: str) -> list[Any]:
        return self._gradients(name, "gradient of parameter")

    def stored_value(self, name: str) -> Any:
        return self._value(name, "stored", "parameters were not saved; history.save(path, parameters=True) keeps them")

    def backward_text(self) -> str:
        entry = self._entries.get(BACKWARD_STEPS)
        return "" if entry is None else self.archive.array(entry).tobytes().decode()

    def below(self, index: int) -> list[Op]:
        return self._below.get(index, [])

    def runs(self) -> list[ModuleRun]:
        return self._runs

    def _value(self, layer: str, variable: str, reason: str) -> Any:
        entry = self._entries.get((layer, variable))
        if entry is not None:
            return self._read(entry)
        composite = self._composites.get(f"{layer} {variable}")
        if composite is None:
            raise ValueUnavailable(self.left_out.get(f"{layer} {variable}") or reason)
        kind, names, settings = composite
        parts = {name: self._value(layer, f"{variable} {name}", f"its part {name!r} is not there") for name in names}
        return rebuild_tensor(kind, parts, settings)

    def _gradients(self, layer: str, variable: str) -> list[Any]:
        gradients: list[Any] = []
        for call in count():
            name = f"{variable} {call}"
            key = f"{layer} {name}"
            if self.left_out.get(key) == "":
                gradients.append(None)  # that backward call did not reach it
            elif (layer, name) in self._entries or key in self.left_out or key in self._composites:
                gradients.append(self._value(layer, name, ""))
            else:
                return gradients
        raise AssertionError("there is always a next number")

    def _read(self, entry: Entry) -> Any:
        """Read a value: a torch tensor if torch is imported, otherwise a numpy array."""
        torch = sys.modules.get("torch")
        if torch is None:
            return self.archive.array(entry)
        cached = self._tensors.get(entry)
        if cached is not None and not cached._version:
            return cached
        with torch.inference_mode(False), torch._C.DisableTorchFunction():  # the caller may be recording
            tensor = self._read_tensor(torch, entry, reread=cached is not None)
        if entry.codec == "raw":
            self._tensors.setdefault(entry, tensor)  # a view of the mapped file: its _version shows later writes
        return tensor

    def _read_tensor(self, torch: Any, entry: Entry, reread: bool) -> Any:
        kind = getattr(torch, entry.type)
        if not entry.stored:
            return torch.empty(entry.shape, dtype=kind)
        return torch.frombuffer(self.archive.memory(entry, reread=reread), dtype=kind).reshape(entry.shape)


def _is_composite(description: Any) -> bool:
    """Return whether a composite's description is valid: [kind, names of parts, settings]."""
    if type(description) is not list or len(description) != 3:
        return False
    kind, names, settings = description
    names_are_text = type(kind) is str and type(names) is list and all(type(name) is str for name in names)
    return names_are_text and type(settings) is dict
