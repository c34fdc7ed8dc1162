"""Saving: the options of `tl.Save`, and the release of values that they do not ask for."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.recorder import ARGS, KWARGS, OUT, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_facts import grad_fn_name, meta_of
from torcheer.capture.record.tensor_trees import argument_leaves
from torcheer.capture.torch_state import version_of
from torcheer.capture.values.copy_on_write import CHANGED, FREED
from torcheer.capture.values.memory_layout import is_freed, storage_of
from torcheer.capture.values.value_copies import copy_of, graph_copy
from torcheer.errors import BadArgument
from torcheer.selection import keys_of


@dataclass(frozen=True)
class Save:
    """Which values to save, and in which form: `layers_to_save=tl.Save("features.*", dtype=torch.float16)`.

    - `layers`: one or a list, in any form that `layers_to_save` takes.
    - `device`, `dtype`: move values there, store them in this type.
    - `transform`: a function of the value; what it returns is stored instead.
    - `detach`: store values without their autograd graph.
    - `stop_early`: end the pass as soon as all of `layers` are saved; the history holds what ran until then.
    - `guard`: "write" copies a value when torch is about to write to it, "clone" copies every value at once.
    """

    layers: Any = "all"  # which layers, in any form of `torcheer.selection`
    device: Any = None  # move values there
    dtype: torch.dtype | None = None  # store values in this type
    transform: Callable[[Tensor], Tensor] | None = None  # store what this returns instead
    detach: bool = False  # without the autograd graph
    stop_early: bool = False  # stop the pass once all requested layers are saved
    guard: str = "write"  # "write": copy when torch is about to write; "clone": copy at once

    def __post_init__(self) -> None:
        if self.guard not in ("write", "clone"):
            raise BadArgument(
                f"guard={self.guard!r}: 'write' copies a value when torch writes to it, 'clone' copies at once"
            )
        if self.layers not in ("all", "none"):
            object.__setattr__(self, "layers", list(keys_of(self.layers, "layers_to_save")))
        if self.stop_early and isinstance(self.layers, str):
            raise BadArgument("stop_early needs a list of layers to stop after")

    @property
    def is_plain(self) -> bool:
        """Whether everything is saved as it ran, the recorder's default."""
        return self.layers == "all" and not self.alters and not self.detach and self.guard == "write"

    @property
    def alters(self) -> bool:
        """Whether stored values differ from what ran."""
        return self.device is not None or self.dtype is not None or self.transform is not None


class StopEarly(BaseException):
    """Raised once all requested layers are saved.

    Not an Exception: the model's own handlers must not catch it.
    """


@dataclass(frozen=True, slots=True)
class ReleasedOutput:
    """The output cell of a row whose tensors were released."""

    metas: tuple[Any, ...]
    grad_fn: str
    output_count: int  # the first ones were returned; the others were only written


@dataclass(frozen=True, slots=True)
class ReleasedArguments:
    """The argument cell of a row whose tensors were released."""

    tensors: tuple[tuple[tuple[int | str, ...], Any], ...]  # (where, the tensor if it is a parameter) of each tensor
    settings: tuple[Any, ...]  # (where, value) of the other arguments


class RowPruner:
    """Save the requested values of each row and release the others."""

    def __init__(self, save: Save, recorder: Recorder, window: int = 0) -> None:
        self.save = save
        self.recorder = recorder
        self._window = window  # rows to hold back: negative positions are certain only this much later
        self._recent: list[int] = []
        self._weak_recorder = weakref.ref(recorder)
        self._saved: dict[int, tuple[Tensor, int]] = {}
        self._kept: set[int] = set()
        recorder.saved = self._saved
        recorder.weak_values = {}

    def finish_row(self, node: int, wanted: bool) -> None:
        """Save or release the values of a complete row."""
        if wanted:
            self.keep(node)
        self._recent.append(node)
        while len(self._recent) > self._window:
            self._release(self._recent.pop(0))

    def finish(self, count: int, positions: set[int]) -> None:
        """Handle the last rows: negative positions are known now."""
        for node in self._recent:
            if node - count in positions:
                self.keep(node)
            self._release(node)
        self._recent.clear()

    def keep(self, node: int) -> None:
        """Save every output of a row that was not released yet."""
        for slot, tensor in enumerate(self.recorder.outputs(node)):
            self.keep_value(node << SLOT_BITS | slot, tensor)

    def keep_value(self, ref: int, tensor: Tensor) -> None:
        """Save one value, in the requested form."""
        memory, save = self.recorder.memory, self.save
        if ref in self._kept:
            return
        self._kept.add(ref)
        copied = memory.pop_preserved(ref)  # its memory was written or exposed before the value was requested
        if ref in memory.lost:
            return
        if copied is None and (is_freed(tensor) or memory.changed(tensor, ref)):
            memory.lost[ref] = FREED if is_freed(tensor) else CHANGED
            return
        tensor = tensor if copied is None else copied
        if save.alters:
            memory.copies[ref] = self._convert(tensor)
            self.recorder.converted.add(ref)
        elif copied is not None:
            memory.copies[ref] = copied.detach() if save.detach else copied
        elif save.guard == "clone" or id(tensor) in memory.exposed:
            memory.copies[ref] = copy_of(tensor) if save.detach else graph_copy(tensor)
        else:
            self._saved[ref] = (tensor.detach() if save.detach else tensor, version_of(tensor))

    def _convert(self, tensor: Tensor) -> Any:
        """Return a value in the requested form, part of its graph even with grad disabled."""
        save = self.save
        value: Any = tensor.detach() if save.detach else tensor
        with torch.set_grad_enabled(torch.is_grad_enabled() or value.requires_grad):
            value = save.transform(value) if save.transform is not None else value
            value = value.to(device=save.device, dtype=save.dtype) if isinstance(value, Tensor) else value
        if isinstance(value, Tensor) and (value is tensor or storage_of(value) == storage_of(tensor)):
            return copy_of(value) if save.detach else graph_copy(value)  # a view would change with the memory
        return value

    def _release(self, node: int) -> None:
        recorder = self.recorder
        start = node * WIDTH
        outputs = recorder.outputs(node)
        for slot, tensor in enumerate(outputs):
            ref, key = node << SLOT_BITS | slot, id(tensor)
            if ref not in self._kept:
                recorder.memory.drop(ref)
            recorder.weak_values[ref] = weakref.ref(tensor, partial(_forget, self._weak_recorder, ref, key))
        first = outputs[0] if outputs else None
        metas, returned = tuple(meta_of(tensor) for tensor in outputs), recorder.output_count(node)
        recorder.rows[start + OUT] = ReleasedOutput(metas, grad_fn_name(first), returned)
        recorder.extra_writes.pop(node, None)
        if not isinstance(recorder.rows[start + ARGS], ReleasedArguments):
            leaves = list(argument_leaves(recorder.rows[start + ARGS], recorder.rows[start + KWARGS]))
            recorder.rows[start + ARGS] = ReleasedArguments(
                tuple(
                    (path, value if isinstance(value, torch.nn.Parameter) else None)
                    for path, value in leaves
                    if isinstance(value, Tensor)
                ),
                tuple((path, value) for path, value in leaves if not isinstance(value, Tensor)),
            )
            recorder.rows[start + KWARGS] = None


def _forget(weak: weakref.ref[Recorder], ref: int, key: int, _: Any) -> None:
    """Remove a freed tensor from the recorder's tables: its id may be reused."""
    recorder = weak()
    if recorder is None:
        return
    recorder.weak_values.pop(ref, None)
    if recorder.refs_by_id.get(key) == ref:
        del recorder.refs_by_id[key]
        recorder.versions.pop(key, None)
