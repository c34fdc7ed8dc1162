"""A recorder that keeps the values asked for and lets the others go: of those, its rows hold facts."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torcheer.capture.random_states import autocast_settings
from torcheer.capture.record.function_table import CALLS, TorchCall
from torcheer.capture.record.recorder import ARGS, KWARGS, OUT, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.released_values import ABSENT, RELEASED, ReleasedOutputs, add_facts, without_tensors
from torcheer.capture.record.source_lines import DIRECT, caller_of
from torcheer.capture.record.tensor_trees import ATOMS, leaves, snapshot
from torcheer.capture.torch_state import dispatch_mode_count, dispatch_modes, is_autocasting

_frame = sys._getframe
_weak = weakref.ref
_autocast_enabled = is_autocasting
_dispatch_modes_on = dispatch_mode_count
_ALL_ABSENT = [(ABSENT,) * count for count in range(64)]  # the arguments of functions that take tensors only


class PartialRecorder(Recorder):
    """A recorder whose rows do not hold their tensors.

    Ids of tensors that died are used again, so an id counts only while the weak reference beside it lives.
    """

    __slots__ = ("alive", "ignored_calls", "on_row", "whole_rows")

    def __init__(self, model: torch.nn.Module | None = None, fused: bool = False) -> None:
        super().__init__(model, fused)
        self.saved = {}
        self.alive: dict[int, weakref.ref[Tensor]] = {}  # id of a tensor with a ref of a row -> the tensor
        self.find_ref = _live_refs(self.refs_by_id, self.alive)  # no method of its own: that would be a cycle
        self.whole_rows = False  # whether `on_op` must see each row with its tensors, and releases them itself
        self.on_row: Callable[[int, TorchCall, Any], None] | None = None  # sees each row that was released at once
        self.ignored_calls: set[TorchCall] = set()  # functions that `on_row` need not see

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Record a call as `Recorder` does, without its tensors."""
        call = CALLS.get(func)
        if (
            call is None
            or self.dispatch_mode_on
            or not (call.plain or call.is_off(args))
            or (kwargs and not ATOMS.issuperset(map(type, kwargs.values())))
        ):
            if call is not None and call.skip:
                return func(*args, **kwargs) if kwargs else func(*args)
            return self._run_special(func, args, kwargs or {}, _frame(1))
        refs_by_id, versions, refs, alive = self.refs_by_id, self.versions, self.refs, self.alive
        begin, has_list = len(refs), False
        try:
            for value in args:
                kind = type(value)
                if kind is Tensor or kind is Parameter:
                    key = id(value)
                    ref = refs_by_id.get(key)
                    if ref is None or (ref >= 0 and alive[key]() is None):
                        refs_by_id.pop(key, None)
                        if not self._store_if_owned(value, key):
                            break
                        ref = refs_by_id[key]
                    elif value._version != versions.get(key, 0):
                        break
                    refs.append(ref)
                elif kind is tuple or kind is list:
                    if not ATOMS.issuperset(map(type, value)) and not self._append_refs(value):
                        break
                    has_list = has_list or kind is list
                elif kind not in ATOMS:
                    break
            else:
                kind = None
        except RuntimeError:  # inference tensors have no version counter
            pass
        if kind is not None and args:  # an unknown or nested value among the arguments
            del refs[begin:]
            return self._run_special(func, args, kwargs or {}, _frame(1))
        if has_list:
            args = snapshot(args)
        frame = _frame(1)
        code = frame.f_code
        start = perf_counter_ns()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException:
            del refs[begin:]
            raise
        nanoseconds = perf_counter_ns() - start
        node, facts = self.count, self.facts
        released: Any = len(facts)
        if type(out) is Tensor:
            if call.idle and out is args[0]:
                del refs[begin:]
                return out
            key, weak = id(out), _weak(out)
            refs_by_id[key] = node << SLOT_BITS
            alive[key] = weak
            try:
                version = out._version
            except RuntimeError:
                version = 0
            if version or key in versions:
                versions[key] = version
            try:
                facts += (weak, out.shape, out.dtype, out.device, out.requires_grad and type(out.grad_fn))
            except Exception:  # no plain tensor
                add_facts(facts, out)
        elif (call.idle and out is args[0]) or not self.set_refs(out, node):  # a parameter, or a subclass
            del refs[begin:]
            return out
        elif not self.whole_rows:
            released = self._release_all(leaves(out))
        if _autocast_enabled():
            self.autocast[node] = autocast_settings()
        if _dispatch_modes_on():
            self.modes[node] = dispatch_modes()
        if id(code) not in DIRECT:
            self.callers[node] = caller_of(frame)
        self.count = node + 1
        if self.whole_rows:
            self.append((call, args, kwargs, out, begin, self.scope, code, frame.f_lasti, nanoseconds))
            return out if self.on_op is None else self.on_op(node, call, out)
        tensors = len(refs) - begin
        if tensors == len(args) < 64 and not has_list:
            args = _ALL_ABSENT[tensors]
        elif tensors == 1 and type(args[0]) is Tensor:
            args = (ABSENT, *args[1:])
        else:
            args = without_tensors(args)
        self.append((call, args, kwargs, released, begin, self.scope, code, frame.f_lasti, nanoseconds))
        if self.on_row is not None and call not in self.ignored_calls:
            self.on_row(node, call, out)
        return out

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
        return node in self.inplace_nodes or not any(self.tensor_of(ref) is tensor for ref in self.row(node).refs)

    def release(self, node: int) -> None:
        """Replace the tensors of a row by what is known of them."""
        start = node * WIDTH
        if type(self.rows[start + OUT]) in RELEASED:
            return
        tensors = self.outputs(node)
        self.rows[start + OUT] = self._release_all(tensors, self.output_count(node))
        self.extra_writes.pop(node, None)
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


def _live_refs(refs_by_id: dict[int, int], alive: dict[int, weakref.ref[Tensor]]) -> Callable[[int], int | None]:
    """Return a function from a tensor's id to its ref, None if the id was that of a tensor which died."""

    def find_ref(key: int) -> int | None:
        ref = refs_by_id.get(key)
        if ref is not None and ref >= 0 and alive[key]() is None:
            del refs_by_id[key]
            return None
        return ref

    return find_ref
