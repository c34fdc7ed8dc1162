"""`history.save` and `tl.load`: a history in an archive, whose values are read lazily."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torcheer import remote
from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.format.record_json import history_from_json, history_to_json
from torcheer.archive.format.tensor_kinds import SHARD, complete_local_tensor, rebuild_tensor, split_tensor
from torcheer.archive.format.value_codecs import Codec
from torcheer.disk import replacing
from torcheer.encoding import refusal
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.history.trace_protocol import Trace
from torcheer.ranks import Ranks, Shard, acts, assemble, rank_of, ranked
from torcheer.records import ModuleRun, Op, RunInfo, Sample, garbage_collection_off
from torcheer.terminal import plural, warn
from torcheer.wire.temporary_folders import TemporaryFolder

ADDED = "variable "  # before the name of a variable that was added to a layer
BACKWARD_STEPS = ("backward", "steps")  # the layer and variable of the steps of a readable backward pass, as text


def save_history(
    history: ModelHistory,
    to: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parameters: bool = False,
    codec: Codec = "raw",
    ranks: Ranks = 0,
) -> Path | str:
    """Save a history with all its values and gradients to the folder or URL `to`, which `torcheer.load` reads.

    Of several processes those of `ranks` save theirs: rank 0 to `to`, rank 1 to `<to>@rank1`, …; of a distributed
    tensor each has its part, and `load(to)` puts them together.

    `overwrite` replaces an existing archive; not at a URL, where others may be reading it. `parameters=True` saves the
    values of parameters and buffers too. `codec` compresses values: a name of `value_codecs.CODECS`, or a function from
    a Sample to one. A value that cannot be saved is left out: a warning names it, and so does the loaded history.

    - `history`: a capture.
    """
    if not acts(ranks):
        text = f"rank {rank_of()[0]} saves nothing: ranks={ranks!r}; history.save(…, ranks='all') saves every rank's"
        warn(f"history.save: {text}")
        return Path(to)
    name = os.fspath(to)
    to = ranked(name if name.endswith("://") else name.rstrip("/"))
    save = _save_to_url if remote.is_url(to) else _save_to_folder
    left_out = save(history, to, overwrite, parameters, codec)
    if text := describe_left_out(history.trace.ops(), left_out):
        warn(f"history.save: {text}")
    return to if remote.is_url(to) else Path(to)


def _save_to_folder(history: ModelHistory, to: str, overwrite: bool, parameters: bool, codec: Codec) -> dict[str, str]:
    target = Path(os.path.realpath(to))  # a link leads to the folder that is replaced
    _check_replaceable(target, overwrite)
    with replacing(target) as part:
        left_out = _write_archive(history, part, parameters, codec)
        _check_replaceable(target, overwrite)  # another process may have saved there meanwhile
    return left_out


def _save_to_url(history: ModelHistory, url: str, overwrite: bool, parameters: bool, codec: Codec) -> dict[str, str]:
    if overwrite:
        raise BadArgument(
            f"overwrite=True: {remote.shown(url)} is not replaced, others may be reading it; save elsewhere"
        )
    folder = TemporaryFolder("save")
    try:
        left_out = _save_to_folder(history, str(folder.path / "history"), False, parameters, codec)
        remote.upload(folder.path / "history", url)
    finally:
        folder.remove()
    return left_out


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
    about = {"kind": "history", "model": info.model, "parameters": parameters, **_rank_facts()}
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
        for name, value in history.variables_of(op.index).items():
            yield layer, f"{ADDED}{name}", value
    for name in trace.info().stored:
        for call, gradient in enumerate(trace.stored_gradients(name)):
            yield name, f"gradient of parameter {call}", gradient
        if parameters:
            yield name, "stored", trace.stored_value(name)
    if text := trace.backward_text():
        yield *BACKWARD_STEPS, np.frombuffer(text.encode(), np.uint8)


def _rank_facts() -> dict[str, Any]:
    """Which process this is, of which start of several; empty for one alone."""
    rank, count = rank_of()
    start = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return {"rank": rank, "of": count, "start": start} if count > 1 else {}


def _open_history(path: Path) -> Archive:
    archive = Archive(path)
    if archive.about.get("kind") != "history" or len(archive.frames) != 1:
        raise NotAnArchive(f"{archive.path} is an archive, but not of a history")
    return archive


def _other_ranks(archive: Archive) -> dict[int, Archive]:
    """The archives that other ranks of the same run have saved beside that of rank 0."""
    about, path = archive.about, archive.path
    if about.get("rank") != 0 or type(about.get("of")) is not int:
        return {}
    beside = {rank: remote.suffixed(path, f"@rank{rank}") for rank in range(1, about["of"])}
    found = {rank: _open_history(folder) for rank, folder in beside.items() if (folder / "archive.json").is_file()}
    return {rank: other for rank, other in found.items() if other.about.get("start") == about.get("start")}


@garbage_collection_off()
def load(path: str | os.PathLike[str]) -> ModelHistory:
    """Load a history that `history.save` wrote.

    It prints, draws and compares like a fresh one, without torch. What several ranks have saved is put together: of
    rank 0's history, values that were shards are whole.

    - `path`: the folder.
    """
    archive = _open_history(remote.local_folder(path))
    others = [SavedTrace(other) for other in _other_ranks(archive).values()]
    return ModelHistory(SavedTrace(archive, others))


class SavedTrace(Trace):
    """Records and values of a history, read from an archive."""

    def __init__(self, archive: Archive, others: Sequence[SavedTrace] = ()) -> None:
        """`others` have the parts of distributed tensors that other ranks saved."""
        self.archive, self._others = archive, tuple(others)
        about = archive.frames[0]["about"]
        self._info, self._ops, below, runs = history_from_json(about, archive.path)
        self._read_runs = cache(runs)
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

    def variables(self, index: int) -> dict[str, Any]:
        layer = str(index)
        return {name.removeprefix(ADDED): self._value(layer, name, "") for name in self._added.get(layer, ())}

    @cached_property
    def _added(self) -> dict[str, list[str]]:
        """The variables that were added to each operation."""
        added: dict[str, list[str]] = {}
        for layer, variable in self._entries:
            if variable.startswith(ADDED):
                added.setdefault(layer, []).append(variable)
        return added

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
        return self._read_runs()

    def _value(self, layer: str, variable: str, reason: str) -> Any:
        entry = self._entries.get((layer, variable))
        if entry is not None:
            return self._read(entry)
        composite = self._composites.get(f"{layer} {variable}")
        if composite is None:
            raise ValueUnavailable(self.left_out.get(f"{layer} {variable}") or reason)
        kind, names, settings = composite
        if kind == SHARD:
            return self._assembled(layer, variable)
        parts = {name: self._value(layer, f"{variable} {name}", f"its part {name!r} is not there") for name in names}
        return rebuild_tensor(kind, parts, settings)

    def _assembled(self, layer: str, variable: str) -> Any:
        """A distributed tensor, of the parts that the ranks have saved."""
        parts, ranks = list[tuple[str, Shard, Any]](), 1
        for trace in (self, *self._others):
            place = self._place_in(trace, layer)
            kind, _, settings = trace._composites.get(f"{place} {variable}", ("", [], {}))
            if kind == SHARD and (shard := Shard.parse(settings)) is not None:
                part = trace._value(place, f"{variable} part", "the part is not there")
                parts.append((f"rank {settings.get('rank')}", shard, part))
                ranks = max(ranks, settings.get("ranks") or 1)
        if not parts:
            raise ArchiveDamaged(f"{self.archive.path}: {layer} {variable} does not say which part it is")
        name = f"{self._ops[int(layer)].name} ({variable})" if layer.isdecimal() else f"{layer} ({variable})"
        first = parts[0][2]
        return assemble(parts, name, ranks, getattr(first, "new_zeros", None))

    def _place_in(self, other: SavedTrace, layer: str) -> str:
        """Where another rank has the same operation: the n-th of its name, as ranks may run others in between."""
        if not layer.isdecimal() or other is self:
            return layer
        name, number = self._ordinals[0][int(layer)]
        return str(other._ordinals[1].get((name, number), ""))

    @cached_property
    def _ordinals(self) -> tuple[list[tuple[str, int]], dict[tuple[str, int], int]]:
        """Of each operation its name and how many of that name came before; and where each of these is."""
        seen: Counter[str] = Counter()
        names = []
        for op in self._ops:
            names.append((op.name, seen[op.name]))
            seen[op.name] += 1
        return names, {name: index for index, name in enumerate(names)}

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
            return self.archive.numbers(entry)
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
