"""Copy-on-write: saved values are references until somebody is about to write to their memory.

Before a write that torch shows us, the saved values that share the memory are copied. Tensors that look at the same
memory under another name become *stale*; when one is read again, an `alias` row says where its new value came from.
Writes nobody showed us are found by torch's version counter when the tensor is next read, and become `unseen` rows.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torcheer.capture.refs import SLOT_BITS
from torcheer.capture.tensor_facts import grad_fn_name

if TYPE_CHECKING:
    from torcheer.capture.recorder import Recorder


class Stale(NamedTuple):
    """A tensor whose memory was written under another name."""

    tensor: weakref.ref[Tensor]
    ref: int  # the value it had
    writes: list[tuple[int, Any]]  # what was written since: ref and geometry


class Leaked(NamedTuple):
    """A tensor whose memory is in other hands."""

    tensor: weakref.ref[Tensor]
    ref: int  # its value at the last look
    value: Tensor


class Memory:
    """Who shares memory with whom, found out only once something writes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)  # no cycle: a dropped history frees its tensors at once
        self.copies: dict[int, Tensor] = {}  # ref -> the value before its memory was written
        self.grad_fns: dict[int, str] = {}  # ref -> its autograd node's name, where a write replaced it
        self.lost: dict[int, str] = {}  # ref -> why its value is gone
        self.stale: dict[int, Stale] = {}  # id of a tensor whose memory was written under another name
        self.leaked: dict[int, Leaked] = {}  # id of a tensor whose memory was handed out
        self._stale_in: dict[int, list[int]] = {}  # storage -> ids of stale tensors
        self._index: dict[int, list[tuple[int, Any]]] = {}  # storage -> (ref, weak tensor)
        self._rows = 0  # rows already in the index
        self._stored = 0  # stored tensors already in the index

    @property
    def recorder(self) -> Recorder:
        """The recorder whose memory this is."""
        recorder = self._recorder()
        assert recorder is not None
        return recorder

    # -- writes we see -----------------------------------------------------------------------------------------------

    def protect(self, written: list[Tensor]) -> None:
        """Copy the saved values that a write to these tensors, whose refs are known, would change."""
        if len(written) == 1 and self._protect_fresh(written[0]):
            return
        with self.recorder.unseen():  # subclasses and other recorders need not know that we look
            self._bring_up_to_date()
            for tensor in written:
                storage = storage_of(tensor)
                entries = self._index.get(storage, [])
                if entries:
                    self._index[storage] = [entry for entry in entries if not self._overtake(entry, tensor, storage)]

    def _protect_fresh(self, tensor: Tensor) -> bool:
        """The common case, without an index: memory of its own, and young, so that only recent rows can share it."""
        recorder = self.recorder
        ref = recorder.known.get(id(tensor), -1)
        node = ref >> SLOT_BITS
        if ref < 0 or recorder.count - node > 8 or recorder.saved is not None or type(tensor) is not Tensor:
            return False
        if not recorder.made_memory(node, tensor) or tensor._is_view() or tensor.is_inference():
            return False
        storage = tensor.untyped_storage()
        if storage.nbytes() != tensor.numel() * tensor.element_size():
            return False
        number = storage._cdata
        for row in range(node, recorder.count):
            for slot, other in enumerate(recorder.outputs(row)):
                if other is tensor:
                    self._copy(row << SLOT_BITS | slot, tensor)
                elif storage_of(other) == number:
                    self._overtake((row << SLOT_BITS | slot, weakref.ref(other)), tensor, number)
        return True

    def _copy(self, ref: int, tensor: Tensor) -> None:
        if ref not in self.copies:
            with self.recorder.unseen():
                self.copies[ref] = copy_of(tensor)
                if tensor.requires_grad:
                    self.grad_fns[ref] = grad_fn_name(tensor)

    def _overtake(self, entry: tuple[int, Any], tensor: Tensor, storage: int) -> bool:
        """Save one value from the write to `tensor`; whether it is done with (False: it lies elsewhere)."""
        ref, weak = entry
        other = weak()
        if other is None and self.recorder.saved and ref in self.recorder.saved:
            other = self.recorder.saved[ref][0]  # kept without its graph, the original is gone
        if other is None:
            return True
        if other is not tensor and disjoint(other, tensor):
            return False
        if self.recorder.keeps(ref):
            self._copy(ref, other)
            if self.recorder.saved is not None:
                self.recorder.saved.pop(ref, None)
        if other is not tensor and self.recorder.known.get(id(other)) == ref:
            self.stale[id(other)] = Stale(weak, ref, [])
            self._stale_in.setdefault(storage, []).append(id(other))
            del self.recorder.known[id(other)]
        return True

    def written(self, written: list[Tensor]) -> None:
        """After the write: siblings share torch's version counter, and the stale learn who wrote."""
        if not self._index and not self._stale_in:
            return
        recorder = self.recorder
        for tensor in written:
            ref, storage = recorder.known[id(tensor)], storage_of(tensor)
            for ref_, weak in self._index.get(storage, ()):
                other = weak()
                if other is not None and id(other) in recorder.known:
                    recorder.know(other, recorder.known[id(other)])
                if recorder.saved and ref_ in recorder.saved:
                    value = recorder.saved[ref_][0]
                    recorder.saved[ref_] = (value, recorder.versions.get(id(other), 0))
            for key in self._stale_in.get(storage, ()):
                stale = self.stale.get(key)
                other = stale.tensor() if stale is not None else None
                if stale is not None and other is not None and not disjoint(other, tensor):
                    stale.writes.append((ref, geometry(tensor)))

    def leak(self, tensor: Any) -> None:
        """Memory was handed out (numpy, dlpack): keep the value, and look at each read whether it changed."""
        if not isinstance(tensor, Tensor) or is_freed(tensor):
            return
        ref = self.recorder.ref_of(tensor)
        with self.recorder.unseen():
            value = copy_of(tensor)
            self._bring_up_to_date()
            for other_ref, weak in self._index.get(storage_of(tensor), ()):
                other = weak()
                if other is not None and other_ref not in self.copies and self.recorder.keeps(other_ref):
                    self.copies[other_ref] = copy_of(other)
        self.copies.setdefault(ref, value)
        self.leaked[id(tensor)] = Leaked(weakref.ref(tensor), ref, value)
        self.recorder.known.pop(id(tensor), None)  # so that every read asks `adopt`

    # -- values that come from elsewhere -----------------------------------------------------------------------------

    def adopt(self, tensor: Tensor) -> int:
        """A ref for a value we do not know: stale, leaked, a buffer, shared memory, or unseen."""
        with self.recorder.unseen():
            return self._adopt(tensor)

    def _adopt(self, tensor: Tensor) -> int:
        key = id(tensor)
        stale, leaked = self.stale.get(key), self.leaked.get(key)
        if stale is not None and stale.tensor() is tensor:
            del self.stale[key]
            parts = tuple(where for _, where in stale.writes)
            refs = [stale.ref, *(ref for ref, _ in stale.writes)]
            return self._alias(tensor, refs, parts, "its memory was written under another name")
        if leaked is not None and leaked.tensor() is tensor:
            return self._look_again(tensor, leaked)
        previous = self.recorder.known.get(key)
        if previous is not None:
            return self._changed_unseen(tensor, previous)
        if self.recorder.is_stored(tensor):
            return self.recorder.store(tensor)
        return self._from_shared_memory(tensor)

    def _look_again(self, tensor: Tensor, leaked: Leaked) -> int:
        with self.recorder.unseen():
            if same_bits(leaked.value, tensor):
                return leaked.ref
            value = copy_of(tensor)
        note = "written through memory that was handed out (numpy, dlpack or its storage)"
        ref = self._unseen(tensor, [leaked.ref], note)
        self.copies[ref] = value
        self.leaked[id(tensor)] = Leaked(leaked.tensor, ref, value)
        del self.recorder.known[id(tensor)]
        return ref

    def _changed_unseen(self, tensor: Tensor, previous: int) -> int:
        if id(tensor) in self.recorder.unsettled or is_empty(tensor):
            self.recorder.unsettled.discard(id(tensor))
            self.recorder.know(tensor, previous)
            return previous
        if previous not in self.copies:
            self.lost[previous] = "its memory was written by something the recorder could not see"
        return self._unseen(tensor, [previous], "written by something the recorder could not see")

    def _from_shared_memory(self, tensor: Tensor) -> int:
        """A new tensor: memory of a value we know, or made where we could not look."""
        self._bring_up_to_date()
        for ref, weak in reversed(self._index.get(storage_of(tensor), [])):
            other = weak()
            if other is not None and self.recorder.known.get(id(other)) == ref and inside(tensor, other):
                return self._alias(tensor, [ref, ref], (geometry(other),), "the same memory under a new name")
        return self._unseen(tensor, [], "made outside the recording, or where the recorder could not look")

    def _alias(self, tensor: Tensor, refs: list[int], parts: tuple[Any, ...], note: str) -> int:
        return self.recorder.add("alias", tensor, refs, (geometry(tensor), *parts), note)

    def _unseen(self, tensor: Tensor, refs: list[int], note: str) -> int:
        return self.recorder.add("unseen", tensor, refs, (), note)

    # -- the index ---------------------------------------------------------------------------------------------------

    def _bring_up_to_date(self) -> None:
        for ref, tensor in self.recorder.values_since(self._rows, self._stored):
            if ref not in self.copies:
                self._index.setdefault(storage_of(tensor), []).append((ref, weakref.ref(tensor)))
        self._rows, self._stored = self.recorder.count, len(self.recorder.stored)


# -- geometry --------------------------------------------------------------------------------------------------------

# What tensors without plain memory raise: sparse, nested, wrapped, not yet initialised.
NO_MEMORY = (NotImplementedError, RuntimeError, ValueError, AttributeError, TypeError)

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]  # sizes, strides, offset


def storage_of(tensor: Tensor) -> int:
    """A number for the memory behind a tensor; tensors without plain memory stand for themselves."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NO_MEMORY:
        return storage_of(bare(tensor)) if is_wrapped(tensor) else id(tensor)


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for another one inside vmap, grad or jvp."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def bare(tensor: Tensor) -> Tensor:
    """The tensor behind the wrappers of torch.func; itself where there are none."""
    while isinstance(tensor, Tensor) and is_wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def geometry(tensor: Tensor) -> Geometry | None:
    """Where in its storage a tensor lies."""
    tensor = bare(tensor)
    try:
        return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    except NO_MEMORY:
        return None


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and the one after the last, within the storage."""
    tensor = bare(tensor)
    if tensor.is_nested:
        raise NotImplementedError
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return first, first
    extent = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (extent + 1) * size


def disjoint(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage surely share no element."""
    try:
        (a, b), (c, d) = _span(one), _span(other)
    except NO_MEMORY:
        return False
    return b <= c or d <= a


def inside(one: Tensor, other: Tensor) -> bool:
    """Whether `one` lies within the span of `other`."""
    try:
        (a, b), (c, d) = _span(one), _span(other)
    except NO_MEMORY:
        return False
    return c <= a and b <= d and one.element_size() == other.element_size()


def is_empty(tensor: Tensor) -> bool:
    """Whether it has no element that a write could change."""
    try:
        return tensor.numel() == 0
    except NO_MEMORY:
        return False


def is_freed(tensor: Tensor) -> bool:
    """Whether its storage is too small to be read; reading it would crash the process."""
    try:
        if tensor.numel() == 0 or tensor.device.type == "meta":
            return False
        return _span(tensor)[1] > tensor.untyped_storage().nbytes()
    except NO_MEMORY:
        return False


def copy_of(tensor: Tensor) -> Tensor:
    """The value now, in memory of its own, with the strides it has."""
    value = tensor.detach() if tensor.requires_grad else tensor
    copied = value.clone()
    try:
        if copied.stride() != value.stride():
            copied = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            copied.copy_(value)
    except NO_MEMORY:  # no strides, or several elements in one place
        copied = value.clone()
    return copied.requires_grad_() if tensor.requires_grad else copied


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal to the last bit, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(one, other)) or _same_bytes(one, other)


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    try:
        a = one.detach().contiguous().view(torch.uint8)
        b = other.detach().contiguous().view(torch.uint8)
    except RuntimeError:
        return False
    return bool(torch.equal(a, b))
