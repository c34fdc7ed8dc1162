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
from torch.multiprocessing.reductions import StorageWeakRef

from torcheer.capture import engine
from torcheer.capture.refs import SLOT_BITS
from torcheer.capture.state import version_of
from torcheer.capture.tensor_facts import grad_fn_name
from torcheer.capture.trees import leaves

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
    value: Tensor | None  # None: it could not be read


class Memory:
    """Who shares memory with whom, found out only once something writes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)  # no cycle: a dropped history frees its tensors at once
        self.copies: dict[int, Tensor] = {}  # ref -> the value before its memory was written
        self.grad_fns: dict[int, str] = {}  # ref -> its autograd node's name, where a write replaced it
        self.lost: dict[int, str] = {}  # ref -> why its value is gone
        self.stale: dict[int, Stale] = {}  # id of a tensor whose memory was written under another name
        self.leaked: dict[int, Leaked] = {}  # id of a tensor whose memory was handed out
        self._handed: dict[
            int, StorageWeakRef
        ] = {}  # storage that was handed out; held weakly, its number is not reused
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
                    self._copy(row << SLOT_BITS | slot, tensor, tensor)
                elif storage_of(other) == number:
                    self._overtake((row << SLOT_BITS | slot, weakref.ref(other)), tensor, number)
        return True

    def _copy(self, ref: int, tensor: Tensor, kept: Tensor) -> None:
        """Copy the value of a tensor, in the form in which it is kept: with its graph or without."""
        if ref in self.copies or ref in self.lost:
            return
        with self.recorder.unseen():
            if is_freed(tensor):
                self.lost[ref] = FREED
            elif self.changed(tensor, ref):
                self.lost[ref] = CHANGED
            if ref in self.lost:
                return
            self.copies[ref] = graph_copy(kept)
            self.grad_fns[ref] = grad_fn_name(tensor)

    def _overtake(self, entry: tuple[int, Any], tensor: Tensor, storage: int) -> bool:
        """Save one value from the write to `tensor`; whether it is done with (False: it lies elsewhere)."""
        ref, weak = entry
        other = weak()
        if other is None and self.recorder.saved and ref in self.recorder.saved:
            other = self.recorder.saved[ref][0]  # kept without its graph, the original is gone
        if other is None or storage_of(other) != storage:  # gone, or its memory was exchanged and this number reused
            return True
        if other is not tensor and disjoint(other, tensor):
            return False
        if self.recorder.keeps(ref):
            saved = self.recorder.saved.pop(ref, None) if self.recorder.saved else None
            self._copy(ref, other, saved[0] if saved is not None else other)
        if other is not tensor and self._holds(other, ref) and not self._written_unseen(other):
            self.stale[id(other)] = Stale(weak, ref, [])
            self._stale_in.setdefault(storage, []).append(id(other))
            self.recorder.known.pop(id(other), None)
            self.leaked.pop(id(other), None)
        return True

    def changed(self, tensor: Tensor, ref: int) -> bool:
        """Whether something unseen wrote to a tensor, or exchanged its memory, after it took this value."""
        recorder, key = self.recorder, id(tensor)
        if recorder.known.get(key) != ref or key in recorder.unsettled or is_empty(tensor):
            return False
        return version_of(tensor) != recorder.versions.get(key, 0)

    def _holds(self, tensor: Tensor, ref: int) -> bool:
        """Whether a value is, as far as is known, what this tensor still holds."""
        leaked = self.leaked.get(id(tensor))
        if leaked is not None and leaked.tensor() is tensor:
            return leaked.ref == ref
        return self.recorder.known.get(id(tensor)) == ref

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

    # -- memory in other hands ---------------------------------------------------------------------------------------

    def leak(self, tensor: Any) -> None:
        """Memory was handed out (numpy, dlpack, its storage): whoever has it writes, frees and resizes unseen.

        The values that lie there are copied, and each tensor of that memory is compared whenever it is read.
        """
        if not isinstance(tensor, Tensor):
            return
        ref = self.recorder.ref_of(tensor)
        with self.recorder.unseen():
            number = storage_of(tensor)
            if number not in self._handed:
                weak = weak_storage(tensor)
                if weak is None:
                    return  # no plain memory: there is nothing to write behind our back
                self._handed = {key: one for key, one in self._handed.items() if not one.expired()}
                self._handed[number] = weak
            for key in list(self._stale_in.get(number, ())):
                stale = self.stale.get(key)
                old = stale.tensor() if stale is not None else None
                if old is not None:
                    self._adopt(old)
            self._bring_up_to_date()
            for other_ref, weak_tensor in self._index.get(number, ()):
                other = weak_tensor()
                if other is None or storage_of(other) != number or not self._holds(other, other_ref):
                    continue
                if not self.changed(other, other_ref):  # else its next read will tell
                    self._leak_one(other, other_ref)
            self._leak_one(tensor, ref)

    def spread(self, out: Any) -> None:
        """A result that lies in memory which was handed out is in other hands, too."""
        if not self._handed:
            return
        with self.recorder.unseen():
            for tensor in leaves(out):
                if id(tensor) not in self.recorder.known:
                    continue
                if storage_of(tensor) in self._handed:
                    self._leak_one(tensor, self.recorder.known[id(tensor)])
                else:
                    self.leaked.pop(id(tensor), None)  # `.data = …` took it out of those hands

    def _leak_one(self, tensor: Tensor, ref: int) -> None:
        key, leaked = id(tensor), self.leaked
        before = leaked.get(key)
        if before is None or before.tensor() is not tensor or before.ref != ref:
            value = graph_copy(tensor) if not is_freed(tensor) else None
            self._keep(ref, tensor, value)
            leaked[key] = Leaked(weakref.ref(tensor, lambda _: leaked.pop(key, None)), ref, value)
        self.recorder.known.pop(key, None)  # so that every read asks `adopt`

    def _keep(self, ref: int, tensor: Tensor, value: Tensor | None) -> None:
        """Remember the value of a tensor that may change at any time, if it is one to be kept."""
        if ref in self.copies or ref in self.lost or not self.recorder.keeps(ref):
            return
        if value is None:
            self.lost[ref] = FREED
            return
        self.copies[ref] = value
        self.grad_fns[ref] = grad_fn_name(tensor)

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

    def _written_unseen(self, tensor: Tensor) -> bool:
        """Whether memory that was handed out is no longer what it was at the last look, as far as it can be read."""
        leaked = self.leaked.get(id(tensor))
        if leaked is None or leaked.tensor() is not tensor:
            return False
        if is_freed(tensor) or is_being_recorded_into_a_graph(tensor):
            return False
        return leaked.value is None or not same_bits(leaked.value, tensor)

    def _look_again(self, tensor: Tensor, leaked: Leaked) -> int:
        if not self._written_unseen(tensor):
            return leaked.ref
        note = "written through memory that was handed out (numpy, dlpack or its storage)"
        ref = self._unseen(tensor, [leaked.ref], note)
        self._leak_one(tensor, ref)
        return ref

    def _changed_unseen(self, tensor: Tensor, previous: int) -> int:
        if id(tensor) in self.recorder.unsettled or is_empty(tensor):
            self.recorder.unsettled.discard(id(tensor))
            self.recorder.know(tensor, previous)
            return previous
        if previous not in self.copies:
            self.lost[previous] = CHANGED
        del self.recorder.known[id(tensor)]
        alias = self._same_memory(tensor)  # `set_` takes the memory of another tensor, and no mode is told
        if alias is not None:
            return alias
        return self._unseen(tensor, [previous], "written by something the recorder could not see")

    def _from_shared_memory(self, tensor: Tensor) -> int:
        """A new tensor: memory of a value we know, or made where we could not look."""
        alias = self._same_memory(tensor)
        if alias is None:
            alias = engine.gradient(self.recorder, tensor)
        if alias is not None:
            return alias
        return self._unseen(tensor, [], "made outside the recording, or where the recorder could not look")

    def _same_memory(self, tensor: Tensor) -> int | None:
        """A ref for a tensor that lies in the memory of a value we know; None if there is none."""
        self._bring_up_to_date()
        number = storage_of(tensor)
        for ref, weak in reversed(self._index.get(number, [])):
            other = weak()
            if other is None or storage_of(other) != number or not self._holds(other, ref) or not inside(tensor, other):
                continue
            if not self.changed(other, ref):
                ref = self.recorder.ref_of(other)  # memory that was handed out may have been written meanwhile
                return self._alias(tensor, [ref, ref], (geometry(other),), "the same memory under a new name")
        return None

    def _alias(self, tensor: Tensor, refs: list[int], parts: tuple[Any, ...], note: str) -> int:
        ref = self.recorder.add("alias", tensor, refs, (geometry(tensor), *parts), note)
        self.spread(tensor)
        return ref

    def _unseen(self, tensor: Tensor, refs: list[int], note: str) -> int:
        ref = self.recorder.add("unseen", tensor, refs, (), note)
        self.spread(tensor)
        return ref

    # -- the index ---------------------------------------------------------------------------------------------------

    def _bring_up_to_date(self) -> None:
        for ref, tensor in self.recorder.values_since(self._rows, self._stored):
            if ref not in self.copies:
                self._index.setdefault(storage_of(tensor), []).append((ref, weakref.ref(tensor)))
        self._rows, self._stored = self.recorder.count, len(self.recorder.stored)


CHANGED = "its memory was written by something the recorder could not see"
FREED = "its memory was freed by the model (FSDP does that) before its value was needed"


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
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
            tensor = bare(tensor)
            parts = parts_of(tensor)
            if parts:
                return any(is_freed(part) for part in parts)
        if tensor.numel() == 0 or tensor.device.type == "meta":
            return False
        return _span(tensor)[1] > tensor.untyped_storage().nbytes()
    except NO_MEMORY:
        return False


PLAIN = (Tensor, torch.nn.Parameter)
_SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}


def parts_of(tensor: Tensor) -> list[Tensor]:
    """The tensors that a sparse tensor or a wrapper (DTensor, masked, jagged) is made of."""
    if tensor.layout in _SPARSE_PARTS:
        return [getattr(tensor, name)() for name in _SPARSE_PARTS[tensor.layout]]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    return [getattr(tensor, name) for name in flatten()[0]] if flatten is not None else []


def weak_storage(tensor: Tensor) -> StorageWeakRef | None:
    """A weak reference to the memory behind a tensor; None where it has no plain memory."""
    try:
        return StorageWeakRef(bare(tensor).untyped_storage())
    except NO_MEMORY:
        return None


def is_being_recorded_into_a_graph(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being recorded: nothing has a value yet, and asking for one would end the recording."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def copy_of(tensor: Tensor) -> Tensor:
    """The value now, in memory of its own, with the strides it has and without a graph."""
    value = tensor.detach() if tensor.requires_grad else tensor
    return restrided(value.clone(), value)


def graph_copy(tensor: Tensor) -> Tensor:
    """The value now, in memory of its own; what is computed from it sends gradients where the tensor's own would go."""
    if not tensor.requires_grad:
        return copy_of(tensor)
    try:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            copied = tensor.clone()
        else:
            with torch.inference_mode(False), torch.enable_grad():
                copied = tensor.clone()
    except RuntimeError:  # a view that autograd itself gave up
        return cut_off(copy_of(tensor))
    if not copied.requires_grad:  # below autograd
        return cut_off(copied)
    if type(copied) in PLAIN and not is_wrapped(copied) and copied.stride() != tensor.stride():
        copied.data = restrided(copied.detach(), tensor.detach())
    return copied


def restrided(copied: Tensor, like: Tensor) -> Tensor:
    """A copy with the strides of the value it was made from, where it can have them."""
    try:
        if copied.stride() != like.stride():
            other = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            other.copy_(like)
            return other
    except NO_MEMORY:  # no strides, or several elements in one place
        pass
    return copied


CUT_OFF = (
    "this value of a torcheer history was written in place where its autograd graph could not be kept: no backward"
)


def cut_off(value: Tensor) -> Tensor:
    """A value that required grad and whose graph is gone: backward through it says so, instead of reaching nothing."""
    if not (value.is_floating_point() or value.is_complex()):
        return value
    try:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = value.detach().requires_grad_()
            found: Tensor = torch._C._functions.DelayedError(CUT_OFF.encode(), 1)(leaf)
            return found
    except RuntimeError:
        return value


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal to the last bit, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    try:
        if torch.equal(one, other):
            return True
    except NotImplementedError:  # complex numbers of half precision
        pass
    return _same_bytes(one, other)


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    try:
        a = one.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)  # a single number has no bytes
        b = other.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    except RuntimeError:
        return False
    return bool(torch.equal(a, b))
