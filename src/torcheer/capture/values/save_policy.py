"""Keeping only what was asked for."""

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


@dataclass(frozen=True)
class Save:
    """What to keep, and in which form."""

    layers: Any = "all"  # "all", "none", or names, module paths, positions, patterns and functions
    device: Any = None  # move values there
    dtype: torch.dtype | None = None  # store values in this type
    transform: Callable[[Tensor], Tensor] | None = None  # store what this returns instead
    detach: bool = False  # without the autograd graph
    stop_early: bool = False  # stop the pass once everything asked for has been seen
    guard: str = "write"  # "write": copy when torch is about to write; "clone": copy at once

    def __post_init__(self) -> None:
        if self.guard not in ("write", "clone"):
            raise BadArgument(
                f"guard={self.guard!r}: 'write' copies a value when torch writes to it, 'clone' copies at once"
            )
        if isinstance(self.layers, str) and self.layers not in ("all", "none"):
            object.__setattr__(self, "layers", [self.layers])
        if callable(self.layers) or isinstance(self.layers, int):
            object.__setattr__(self, "layers", [self.layers])
        if self.stop_early and isinstance(self.layers, str):
            raise BadArgument("stop_early needs a list of layers to stop after")

    @property
    def is_plain(self) -> bool:
        """Everything, as it is: the recorder's own way."""
        return self.layers == "all" and not self.alters and not self.detach and self.guard == "write"

    @property
    def alters(self) -> bool:
        """Whether what is stored differs from what ran."""
        return self.device is not None or self.dtype is not None or self.transform is not None


class StopEarly(BaseException):
    """Everything asked for has been seen. Not an Exception: the model's own handlers must not catch it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """What is left of a row whose tensors were let go."""

    metas: tuple[Any, ...]
    grad_fn: str
    returned: int  # how many of them it returned; the others it wrote


@dataclass(frozen=True, slots=True)
class Outline:
    """Arguments without their tensors."""

    tensors: tuple[tuple[tuple[int | str, ...], Any], ...]  # where tensors entered, and the parameters among them
    settings: tuple[Any, ...]  # the rest


class Keeper:
    """Lets go of what was not asked for, row by row."""

    def __init__(self, save: Save, recorder: Recorder, window: int = 0) -> None:
        self.save = save
        self.recorder = recorder
        self._window = window  # positions from the end are certain only this much later
        self._recent: list[int] = []
        self._weak_recorder = weakref.ref(recorder)
        self._saved: dict[int, tuple[Tensor, int]] = {}
        self._kept: set[int] = set()
        recorder.saved = self._saved
        recorder.live = {}

    def op(self, node: int, wanted: bool) -> None:
        """A row is complete: keep its values or let them go."""
        if wanted:
            self.keep(node)
        self._recent.append(node)
        while len(self._recent) > self._window:
            self._let_go(self._recent.pop(0))

    def finish(self, count: int, positions: set[int]) -> None:
        """The run is over: positions from the end are known now."""
        for node in self._recent:
            if node - count in positions:
                self.keep(node)
            self._let_go(node)
        self._recent.clear()

    def keep(self, node: int) -> None:
        """Keep every output of a row whose tensors are still here."""
        for slot, tensor in enumerate(self.recorder.outputs(node)):
            self.keep_value(node << SLOT_BITS | slot, tensor)

    def keep_value(self, ref: int, tensor: Tensor) -> None:
        """Keep one value, in the form that was asked for."""
        memory, save = self.recorder.memory, self.save
        if ref in self._kept:
            return
        self._kept.add(ref)
        copied = memory.take(ref)  # before it was known to be wanted, its memory was written or handed out
        if ref in memory.lost:
            return
        if copied is None and (is_freed(tensor) or memory.changed(tensor, ref)):
            memory.lost[ref] = FREED if is_freed(tensor) else CHANGED
            return
        tensor = tensor if copied is None else copied
        if save.alters:
            memory.copies[ref] = self._altered(tensor)
            self.recorder.altered.add(ref)
        elif copied is not None:
            memory.copies[ref] = copied.detach() if save.detach else copied
        elif save.guard == "clone" or id(tensor) in memory.leaked:
            memory.copies[ref] = copy_of(tensor) if save.detach else graph_copy(tensor)
        else:
            self._saved[ref] = (tensor.detach() if save.detach else tensor, version_of(tensor))

    def _altered(self, tensor: Tensor) -> Any:
        """A value in the form that was asked for; part of the graph, even where the model runs without one."""
        save = self.save
        value: Any = tensor.detach() if save.detach else tensor
        with torch.set_grad_enabled(torch.is_grad_enabled() or value.requires_grad):
            value = save.transform(value) if save.transform is not None else value
            value = value.to(device=save.device, dtype=save.dtype) if isinstance(value, Tensor) else value
        if isinstance(value, Tensor) and (value is tensor or storage_of(value) == storage_of(tensor)):
            return copy_of(value) if save.detach else graph_copy(value)  # a view would change with the memory
        return value

    def _let_go(self, node: int) -> None:
        recorder = self.recorder
        start = node * WIDTH
        outputs = recorder.outputs(node)
        for slot, tensor in enumerate(outputs):
            ref, key = node << SLOT_BITS | slot, id(tensor)
            if ref not in self._kept:
                recorder.memory.drop(ref)
            recorder.live[ref] = weakref.ref(tensor, partial(_forget, self._weak_recorder, ref, key))
        first = outputs[0] if outputs else None
        metas, returned = tuple(meta_of(tensor) for tensor in outputs), recorder.returned(node)
        recorder.rows[start + OUT] = Gone(metas, grad_fn_name(first), returned)
        recorder.writers.pop(node, None)
        if not isinstance(recorder.rows[start + ARGS], Outline):
            leaves = list(argument_leaves(recorder.rows[start + ARGS], recorder.rows[start + KWARGS]))
            recorder.rows[start + ARGS] = Outline(
                tuple(
                    (path, value if isinstance(value, torch.nn.Parameter) else None)
                    for path, value in leaves
                    if isinstance(value, Tensor)
                ),
                tuple((path, value) for path, value in leaves if not isinstance(value, Tensor)),
            )
            recorder.rows[start + KWARGS] = None


def _forget(weak: weakref.ref[Recorder], ref: int, key: int, _: Any) -> None:
    """A tensor died: its id may be used again."""
    recorder = weak()
    if recorder is None:
        return
    recorder.live.pop(ref, None)
    if recorder.known.get(key) == ref:
        del recorder.known[key]
        recorder.versions.pop(key, None)
