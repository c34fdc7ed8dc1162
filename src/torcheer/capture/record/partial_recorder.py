"""A recorder that keeps the values asked for and lets the others go: of those, its rows hold facts."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.function_table import TorchCall
from torcheer.capture.record.recorder import ARGS, KWARGS, OUT, TENSORS, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.released_values import RELEASED, ReleasedOutputs, add_facts
from torcheer.capture.record.tensor_trees import ABSENT, leaves, without_tensors

_weak = weakref.ref


class PartialRecorder(Recorder):
    """A recorder whose rows do not hold their tensors.

    Ids of tensors that died are used again, so an id counts only while the weak reference beside it lives.
    """

    __slots__ = ()
    alive: dict[int, weakref.ref[Tensor]]

    def __init__(self, model: torch.nn.Module | None = None, fused: bool = False) -> None:
        super().__init__(model, fused)
        self.saved = {}
        self.alive = {}  # id of a tensor with a ref of a row -> the tensor
        self.add_released = _add_released
        self.find_ref = _live_refs(self.refs_by_id, self.alive)  # no method of its own: that would be a cycle

    def release_late(self) -> None:
        """Let `on_op` see each row with its tensors; it releases them itself."""
        self.add_released = None

    def _append_refs(self, values: Any) -> bool:
        for value in values:
            self.find_ref(id(value))  # forgets those that died
        return super()._append_refs(values)

    def set_ref(self, tensor: Tensor, ref: int) -> None:
        """Set the ref of a tensor's current value."""
        super().set_ref(tensor, ref)
        if ref >= 0:
            self.alive[id(tensor)] = _weak(tensor)

    def allocated_memory(self, node: int, tensor: Tensor) -> bool:
        """Whether a row allocated or last wrote its result's memory, so that no older row shares it."""
        if not super().allocated_memory(node, tensor):
            return False
        if node in self.inplace_nodes:
            return True
        for ref in self.refs_of(node):  # behind those of the newest row there may be those of a call to come
            if 0 <= ref < node << SLOT_BITS and self.tensor_of(ref) is tensor:
                return False
        return True

    def release(self, node: int) -> None:
        """Replace the tensors of a row by what is known of them."""
        start = node * WIDTH
        if type(self.rows[start + OUT]) in RELEASED:
            return
        tensors = self.outputs(node)
        self.rows[start + OUT] = self._release_all(tensors, self.output_count(node))
        self.extra_writes.pop(node, None)
        if self.rows[start].mark:  # of which only edits have tensors: states of random generators
            return
        self.rows[start + ARGS] = without_tensors(self.rows[start + ARGS])
        if self.rows[start + KWARGS]:
            self.rows[start + KWARGS] = without_tensors(self.rows[start + KWARGS])

    def _release_all(self, tensors: list[Tensor], returned: int | None = None) -> int | ReleasedOutputs:
        """Take the facts of tensors; return the output cell of their row."""
        facts = self.facts
        offset, count = len(facts), len(tensors)
        for tensor in tensors:
            add_facts(facts, tensor)
        return offset if count == 1 else ReleasedOutputs(offset, count, count if returned is None else returned)


def _add_released(
    recorder: Any,
    call: TorchCall,
    args: Any,
    kwargs: Any,
    out: Any,
    begin: int,
    frame: Any,
    duration: int,
    nesting: int,
) -> None:
    """Append the row that was just counted, without its tensors; no method, as a bound one would be a cycle.

    The recorder does it in line where the call returned one tensor and its arguments are not nested.
    """
    tensors = leaves(out)
    if type(out) is Tensor:
        recorder.alive[id(out)] = _weak(out)
    released = recorder._release_all(tensors)
    args = tuple([_without(value) for value in args])
    recorder.append((call, args, kwargs, released, begin, recorder.scope, frame.f_code, frame.f_lasti, duration))
    if recorder.recent is not None:
        recorder.recent.append((recorder.count - 1, tensors))
    if recorder.on_row is not None and call not in recorder.ignored_calls:
        recorder.on_row(recorder.count - 1, call, out)


def _without(value: Any) -> Any:
    """Return an argument of a plain call without its tensors: one, or a sequence of nothing else, or none of them."""
    kind = type(value)
    if kind in TENSORS:
        return ABSENT
    if (kind is tuple or kind is list) and value and type(value[0]) in TENSORS:
        return kind((ABSENT,) * len(value))
    return without_tensors(value)


def _live_refs(refs_by_id: dict[int, int], alive: dict[int, weakref.ref[Tensor]]) -> Callable[[int], int | None]:
    """Return a function from a tensor's id to its ref, None if the id was that of a tensor which died."""

    def find_ref(key: int) -> int | None:
        ref = refs_by_id.get(key)
        if ref is not None and ref >= 0 and alive[key]() is None:
            del refs_by_id[key]
            return None
        return ref

    return find_ref
