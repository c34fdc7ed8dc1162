"""Copy-on-write: saved values are references until an operation writes to their memory.

Before a recorded write, the saved values that share the memory are copied, or deferred if a small part of a large one
is written (`byte_history`). Other tensors over the same memory become *stale*; when one is read again, an `alias` row
says where its new value came from.
Unrecorded writes are found by torch's version counter when the tensor is next read, and become `unseen` rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from torcheer.capture.record.function_table import BY_INDEX, TorchCall
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_facts import grad_fn_name, meta_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.special_cases import autograd_engine
from torcheer.capture.torch_state import function_mode_count, version_of
from torcheer.capture.values.byte_history import DeferredValue, UndoLog, anchor_of
from torcheer.capture.values.memory_layout import (
    MemoryRegion,
    addresses_of,
    are_disjoint,
    geometry,
    is_being_recorded_into_a_graph,
    is_empty,
    is_foreign,
    is_freed,
    is_inside,
    region_of,
    storage_of,
    weak_storage,
)
from torcheer.capture.values.storage_writes import (
    MAX_MISSES,
    OverwrittenValue,
    StaleTensor,
    StorageBlock,
    StorageEntry,
    can_defer,
    is_raw,
    nbytes,
    writes_to,
)
from torcheer.capture.values.value_copies import copy_of, cut_off, graph_copy, same_bits
from torcheer.capture.values.written_regions import Window, window_of

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder


class ExposedTensor(NamedTuple):
    """A tensor whose memory was handed out (numpy, dlpack, its storage) and may change unseen."""

    tensor: weakref.ref[Tensor]
    ref: int  # of its value at the last comparison
    value: Tensor | None  # a copy of that value; None: it could not be read


SMALL_BYTES = 1 << 14  # up to this size, copying a value is faster than finding out which part of it is written


class ValueMemory:
    """Values that share memory, and their copies from before writes.

    The index of storages is built only once something writes.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)  # no cycle: a dropped history frees its tensors at once
        self.copies: dict[int, Tensor] = {}  # ref -> the value before its memory was written
        self.deferred: dict[int, DeferredValue] = {}  # ref -> such a value, rebuilt when it is read
        self.grad_fns: dict[int, str] = {}  # ref -> name of its autograd node before a write replaced it
        self.lost: dict[int, str] = {}  # ref -> why its value is unavailable
        self.stale: dict[int, StaleTensor] = {}  # id of a tensor -> its memory was written through another tensor
        self.exposed: dict[int, ExposedTensor] = {}  # id of a tensor -> its memory was handed out
        self.copied_bytes = 0  # total of the copies made before writes
        # storage id -> weak reference to it, its addresses: another storage there (dlpack, numpy) is exposed, too
        self._exposed_storages: dict[int, tuple[StorageWeakRef, range]] = {}
        self._index: dict[int, list[tuple[int, Any]]] = {}  # id of an unwritten storage -> (ref, weak tensor)
        self._blocks: dict[int, StorageBlock] = {}  # id of a written storage -> its tensors and writes
        self._places: list[tuple[int, Any, int, int]] = []  # (ref, weak tensor, addresses of its storage)
        self._placed = 0, 0  # rows and stored tensors already in it
        self._rows = 0  # rows already in the index
        self._stored = 0  # stored tensors already in the index

    @property
    def recorder(self) -> Recorder:
        """The recorder that owns this object."""
        recorder = self._recorder()
        assert recorder is not None
        return recorder

    # -- recorded writes ---------------------------------------------------------------------------------------------

    def protect(self, call: TorchCall, args: tuple[Any, ...], written: list[Tensor]) -> list[Window]:
        """Preserve the saved values that a write to these tensors would change.

        The refs of the tensors must be known.
        """
        if call.name == "set_data" and written[0].requires_grad:
            self._keep_replaced(written[0], args[1])
        if len(written) == 1 and (call.name not in BY_INDEX or nbytes(written[0]) <= SMALL_BYTES):
            shared = self._protect_fresh(written[0])
            if shared is not None and not shared:
                return []
        else:
            shared = None
        with self.recorder.paused():  # hide these reads from subclasses and other recorders
            windows = [window_of(call, args, tensor) for tensor in written]
            for window in windows:
                if shared is None:
                    self._protect(window)
                for ref, other in shared or ():
                    if self.recorder.must_keep(ref):
                        self._copy(ref, other, self._saved_form(ref, other))
                    self._mark_stale(ref, other, window, self._block(window.tensor, window.number))
        return windows

    def protect_alone(self, tensor: Tensor) -> bool:
        """Preserve a value before a write to all of its memory; False if other values may share that."""
        shared = self._protect_fresh(tensor)
        return shared is not None and not shared

    def _keep_replaced(self, leaf: Tensor, new: Tensor) -> None:
        """Copy what a leaf holds, before `.data = …` gives it another shape, dtype or device, without its graph.

        A copy with its graph would fix, for backward, the shape that the leaf's gradient must have.
        """
        with self.recorder.paused():
            ref = self.recorder.ref_of(leaf)
            is_alike = (leaf.dtype, leaf.device) == (new.dtype, new.device) and not is_lazy(leaf)
            if leaf.is_leaf and not (is_alike and leaf.shape == new.shape) and self.recorder.must_keep(ref):
                if not self._needs_no_copy(ref, leaf):
                    self._add_copy(ref, leaf, cut_off(copy_of(leaf)))

    def _protect_fresh(self, tensor: Tensor) -> list[tuple[int, Tensor]] | None:
        """Handle recently allocated memory without the index: only recent rows can share it.

        Copies the tensor's value and returns the other values that share its memory; None if the case does not apply.
        """
        recorder = self.recorder
        ref = recorder.find_ref(id(tensor))
        node = -1 if ref is None else ref >> SLOT_BITS
        if ref is None or ref < 0 or recorder.count - node > 8 or type(tensor) is not Tensor:
            return None
        if not recorder.allocated_memory(node, tensor) or tensor._is_view() or tensor.is_inference():
            return None
        storage = tensor.untyped_storage()
        number = storage._cdata
        if number in self._blocks or storage.nbytes() != tensor.numel() * tensor.element_size():
            return None
        shared: list[tuple[int, Tensor]] = []
        for row in range(node, recorder.count):
            for value in recorder.live_values(row):
                if value[1] is not tensor and storage_of(value[1]) == number:
                    shared.append(value)
        if ref not in self.copies and ref not in self.lost and recorder.must_keep(ref):
            if function_mode_count() or recorder.dispatch_mode_on:
                with recorder.paused():
                    self._add_copy(ref, tensor, graph_copy(self._saved_form(ref, tensor)))
            else:  # the recorder is not active while it handles a call
                self._add_copy(ref, tensor, graph_copy(self._saved_form(ref, tensor)))
        return shared

    def _protect(self, window: Window) -> None:
        self._update_index()
        recorder, block = self.recorder, self._block(window.tensor, window.number)
        reached: list[OverwrittenValue] = []
        removed: list[int] = []
        for number in block.entries.overlapping(window.region):
            entry: StorageEntry = block.entries.items[number]
            ref, other = entry.ref, entry.weak()
            if other is None and recorder.saved and ref in recorder.saved:
                other = recorder.saved[ref][0]  # saved detached; the original tensor is gone
            if other is None or storage_of(other) != window.number:  # gone, or its storage was replaced
                removed.append(number)
            elif entry.missed < MAX_MISSES and other is not window.tensor and are_disjoint(entry.region, window.region):
                entry.missed += 1
            else:
                removed.append(number)
                reached.append(OverwrittenValue(ref, other, entry.region))
        self._preserve([value for value in reached if recorder.must_keep(value.ref)], window, block)
        for ref, other, _ in reached:
            self._mark_stale(ref, other, window, block)
        for number in removed:  # only now: preserving them reads the entries
            block.entries.remove(number)

    def preserve_views(self, tensors: list[Tensor], begin: int) -> None:
        """Copy the values, from a row on, that share memory with these tensors, which the model is about to free."""
        recorder = self.recorder
        with recorder.paused():
            reached = {recorder.find_ref(id(tensor)) for tensor in tensors}
            storages = set(map(storage_of, tensors))
            for node in range(begin, recorder.count):
                if reached.isdisjoint(recorder.refs_of(node)):
                    continue
                for ref, value in recorder.live_values(node):
                    if storage_of(value) in storages:
                        reached.add(ref)
                        if recorder.must_keep(ref):
                            self._copy(ref, value, self._saved_form(ref, value))

    def _mark_stale(self, ref: int, other: Tensor, window: Window, block: StorageBlock) -> None:
        """Mark another tensor over the memory about to be written as stale."""
        if other is window.tensor or not self._holds(other, ref) or self._differs_from_copy(other):
            return
        self.stale[id(other)] = StaleTensor(weakref.ref(other), ref, block, len(block.writes.items))
        block.stale.append(id(other))
        self.recorder.refs_by_id.pop(id(other), None)
        self.exposed.pop(id(other), None)

    def _preserve(self, values: list[OverwrittenValue], window: Window, block: StorageBlock) -> None:
        """Copy values, or defer them if they are much larger than the region written."""
        if not values and block.undo_log is None:
            return
        size = block.undo_log.bytes if block.undo_log is not None else 0
        for _, _, region in values:
            size += region.bytes if region is not None else 0
        if size <= 4 * window.bytes or not can_defer(window):
            self._materialize(block)
            for ref, other, _ in values:
                self._copy(ref, other, self._saved_form(ref, other))
            return
        for ref, other, region in values:
            form = self._saved_form(ref, other)
            if not self._needs_no_copy(ref, other, region) and not self._defer(ref, form, region, window, block):
                self._copy(ref, other, form)
        if block.undo_log is not None:
            assert window.region is not None
            self.copied_bytes += block.undo_log.record_write(window.part, window.region, window.index)

    def _saved_form(self, ref: int, other: Tensor) -> Tensor:
        """Return a value in the form in which it is saved: with its graph or detached."""
        saved = self.recorder.saved.pop(ref, None) if self.recorder.saved else None
        return saved[0] if saved is not None else other

    def _needs_no_copy(self, ref: int, tensor: Tensor, region: MemoryRegion | None = None) -> bool:
        """Whether a value is preserved already, or can no longer be copied."""
        if ref not in self.copies and ref not in self.deferred and ref not in self.lost:
            if is_freed(tensor) if region is None else region.end > tensor.untyped_storage().nbytes():
                self.lost[ref] = FREED
            elif self.changed(tensor, ref):
                self.lost[ref] = CHANGED
            else:
                return False
        return True

    def _copy(self, ref: int, tensor: Tensor, form: Tensor) -> None:
        """Copy the value of a tensor, in the form in which it is saved."""
        if not self._needs_no_copy(ref, tensor):
            self._add_copy(ref, tensor, graph_copy(form))

    def _add_copy(self, ref: int, tensor: Tensor, copied: Tensor) -> None:
        self.copies[ref] = copied
        self.grad_fns[ref] = grad_fn_name(tensor) if tensor.requires_grad else ""
        self.copied_bytes += nbytes(copied)

    def _defer(self, ref: int, form: Tensor, region: MemoryRegion | None, window: Window, block: StorageBlock) -> bool:
        """Defer the copy of a value; False if it must be copied now."""
        if (
            region is None
            or window.number in self._exposed_storages
            or (form is not window.tensor and not is_raw(form, region))
        ):
            return False
        anchor = anchor_of(form) if form.requires_grad else None
        if form.requires_grad and anchor is None:
            return False
        if block.undo_log is None:
            block.undo_log = UndoLog(form)
        self.deferred[ref] = block.undo_log.defer(ref, region, form.dtype, anchor)
        self.grad_fns[ref] = grad_fn_name(form) if anchor is not None else ""
        return True

    def _materialize(self, block: StorageBlock) -> None:
        """Materialize all deferred values of a block: cheaper than one more entry in the undo log."""
        undo_log, block.undo_log = block.undo_log, None
        if undo_log is None:
            return
        for ref in undo_log.waiting:
            value = self.deferred.pop(ref, None)
            if value is not None:
                self.copies[ref] = copied = value.value()
                self.copied_bytes += nbytes(copied)

    def _block(self, tensor: Tensor, number: int) -> StorageBlock:
        """Return the block of a storage, with the tensors indexed since the last call added."""
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = StorageBlock(tensor)
        for ref, weak in self._index.pop(number, ()):
            other = weak()
            if other is not None or (self.recorder.saved and ref in self.recorder.saved):
                region = region_of(other if other is not None else self.recorder.saved[ref][0])  # type: ignore[index]
                block.entries.append(region, StorageEntry(ref, weak, region))
        return block

    def original(self, ref: int, tensor: Any) -> Any:
        """Return a row's tensor as recorded: itself, the copy made before a write, or its metadata."""
        if ref in self.deferred:
            return replace(meta_of(tensor), requires_grad=self.deferred[ref].requires_grad)
        return self.copies.get(ref, tensor)

    def preserved(self, ref: int) -> Tensor | None:
        """Return the value from before its memory was written; None if it was not."""
        value = self.copies.get(ref)
        if value is None and ref in self.deferred:
            with self.recorder.paused():
                return self.deferred[ref].value()
        return value

    def pop_preserved(self, ref: int) -> Tensor | None:
        """Return a preserved value and drop it here."""
        value = self.preserved(ref)
        self.drop(ref)
        return value

    def drop(self, ref: int) -> None:
        """Drop a preserved value."""
        self.copies.pop(ref, None)
        self.deferred.pop(ref, None)

    def finish(self) -> None:
        """End the recording: seal the undo logs, as later writes are not recorded."""
        with self.recorder.paused():
            for block in self._blocks.values():
                self._seal(block)

    def _seal(self, block: StorageBlock) -> None:
        if block.undo_log is not None:
            block.undo_log.seal()
            block.undo_log = None

    def changed(self, tensor: Tensor, ref: int) -> bool:
        """Whether a tensor was written, or its storage replaced, unrecorded since this value."""
        recorder, key = self.recorder, id(tensor)
        if recorder.find_ref(key) != ref or key in recorder.unsettled or is_empty(tensor):
            return False
        before, after = recorder.versions.get(key, 0), version_of(tensor)
        return before != after and not self.all_writes_seen(tensor, ref, before, after)

    def all_writes_seen(self, tensor: Tensor, ref: int, before: int, after: int) -> bool:
        """Whether all writes between two versions were recorded and missed the value's region."""
        block = self._blocks.get(storage_of(tensor))
        if block is None or not block.all_writes_seen(before, after):
            return False
        region = region_of(tensor)
        entries = (block.entries.items[number] for number in block.entries.overlapping(region))
        return any(entry.ref == ref and entry.region == region for entry in entries)

    def _holds(self, tensor: Tensor, ref: int) -> bool:
        """Whether this tensor still holds a value, as far as is known."""
        exposed = self.exposed.get(id(tensor))
        if exposed is not None and exposed.tensor() is tensor:
            return exposed.ref == ref
        return self.recorder.find_ref(id(tensor)) == ref

    def after_write(self, windows: list[Window]) -> None:
        """Register finished writes: who wrote, for stale tensors; versions, for unaffected ones."""
        for window in windows:
            block, tensor = self._blocks.get(window.number), window.tensor
            if block is not None and storage_of(tensor) == window.number:  # else `.data = …` replaced its storage
                block.add_seen_write(window.version, version_of(tensor))
                block.writes.append(
                    window.region, (self.recorder.refs_by_id[id(tensor)], geometry(tensor), window.region)
                )

    def keep_before_exchange(self, tensor: Tensor) -> None:
        """Keep the value of a tensor that `set_` is about to give other memory, and perhaps another shape."""
        with self.recorder.paused():
            ref = self.recorder.find_ref(id(tensor))
            if ref is not None and self._holds(tensor, ref) and self.recorder.must_keep(ref):
                self._copy(ref, tensor, self._saved_form(ref, tensor))

    # -- exposed memory ----------------------------------------------------------------------------------------------

    def expose(self, tensor: Any) -> None:
        """Handle memory handed out (numpy, dlpack, storage), which may be written or freed unseen.

        The values in it are copied, and each tensor over it is compared with its copy whenever it is read.
        """
        if not isinstance(tensor, Tensor):
            return
        ref = self.recorder.ref_of(tensor)
        with self.recorder.paused():
            number = storage_of(tensor)
            if not self._expose_storage(tensor):
                return  # no plain memory, so no unrecorded writes
            block = self._block(tensor, number)
            self._seal(block)
            keys, block.stale = block.stale, []
            for key in keys:
                stale = self.stale.get(key)
                old = stale.tensor() if stale is not None else None
                if old is not None:
                    self._adopt(old)
            self._update_index()
            for entry in filter(None, list(self._block(tensor, number).entries.items)):
                other = entry.weak()
                if other is None or storage_of(other) != number or not self._holds(other, entry.ref):
                    continue
                if not self.changed(other, entry.ref):  # else its next read finds the change
                    self._expose_tensor(other, entry.ref)
            self._expose_tensor(tensor, ref)

    def _expose_storage(self, tensor: Tensor) -> bool:
        number, weak = storage_of(tensor), weak_storage(tensor)
        if weak is None:
            return False
        self._exposed_storages = {key: held for key, held in self._exposed_storages.items() if not held[0].expired()}
        self._exposed_storages[number] = weak, addresses_of(tensor)
        return True

    def _is_exposed(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory was handed out, as this storage or as another one at the same addresses."""
        if storage_of(tensor) in self._exposed_storages:
            return True
        addresses = addresses_of(tensor)
        return any(
            addresses.start < others.stop and others.start < addresses.stop and not weak.expired()
            for weak, others in self._exposed_storages.values()
        ) and self._expose_storage(tensor)

    def expose_foreign(self, out: Any) -> None:
        """Handle results over memory that is not torch's: that of the array that they were made of, as no copy."""
        for tensor in filter(is_foreign, leaves(out)):
            self.expose(tensor)

    def _expose_owners(self, tensor: Tensor) -> None:
        """Handle a tensor over memory that torch did not allocate: that of a recorded value, handed out unseen?"""
        if not is_foreign(tensor):
            return
        for ref, other in self.recorder.values_since(self._placed[0], self._placed[1]):
            if addresses := addresses_of(other):
                self._places.append((ref, weakref.ref(other), addresses.start, addresses.stop))
        self._placed = self.recorder.count, len(self.recorder.stored)
        own = addresses_of(tensor)
        for ref, weak, begin, end in self._places:
            if begin < own.stop and own.start < end:
                other = weak()
                if other is not None and addresses_of(other).start == begin and self._holds(other, ref):
                    self.expose(other)

    def expose_results(self, out: Any) -> None:
        """Mark results over exposed memory as exposed, too."""
        if not self._exposed_storages:
            return
        with self.recorder.paused():
            for tensor in leaves(out):
                if self.recorder.find_ref(id(tensor)) is None:
                    continue
                if self._is_exposed(tensor):
                    self._expose_tensor(tensor, self.recorder.refs_by_id[id(tensor)])
                else:
                    self.exposed.pop(id(tensor), None)  # `.data = …` replaced its storage

    def _expose_tensor(self, tensor: Tensor, ref: int) -> None:
        key, exposed = id(tensor), self.exposed
        before = exposed.get(key)
        if before is None or before.tensor() is not tensor or before.ref != ref:
            value = graph_copy(tensor) if not is_freed(tensor) else None
            self._keep_exposed(ref, tensor, value)
            exposed[key] = ExposedTensor(weakref.ref(tensor, lambda _: exposed.pop(key, None)), ref, value)
        self.recorder.refs_by_id.pop(key, None)  # so that every read goes through `adopt`

    def _keep_exposed(self, ref: int, tensor: Tensor, value: Tensor | None) -> None:
        """Keep a copy of the value of an exposed tensor, if the value is to be kept."""
        if ref in self.copies or ref in self.deferred or ref in self.lost or not self.recorder.must_keep(ref):
            return
        if value is None:
            self.lost[ref] = FREED
            return
        self.copies[ref] = value
        self.grad_fns[ref] = grad_fn_name(tensor)

    # -- values of unknown origin ------------------------------------------------------------------------------------

    def adopt(self, tensor: Tensor) -> int:
        """Return a ref for an unknown value: stale, exposed, a buffer, shared memory, or unseen."""
        with self.recorder.paused():
            return self._adopt(tensor)

    def _adopt(self, tensor: Tensor) -> int:
        key = id(tensor)
        stale, exposed = self.stale.get(key), self.exposed.get(key)
        if stale is not None and stale.tensor() is tensor:
            del self.stale[key]
            if self._blocks.get(storage_of(tensor)) is not stale.block:  # `set_` replaced its storage
                return self._adopt_new(tensor)
            writes = writes_to(tensor, stale)
            if not writes:  # they went to elements between its own
                self.recorder.set_ref(tensor, stale.ref)
                self._index.setdefault(storage_of(tensor), []).append((stale.ref, stale.tensor))
                self.expose_results(tensor)
                return stale.ref
            refs = [stale.ref, *(ref for ref, _, _ in writes)]
            return self._add_alias(
                tensor, refs, tuple(where for _, where, _ in writes), "its memory was written under another name"
            )
        if exposed is not None and exposed.tensor() is tensor:
            return self._check_exposed(tensor, exposed)
        previous = self.recorder.find_ref(key)
        if previous is not None:
            return self._adopt_changed(tensor, previous)
        if self.recorder.is_stored(tensor):
            return self.recorder.store(tensor)
        return self._adopt_new(tensor)

    def _differs_from_copy(self, tensor: Tensor) -> bool:
        """Whether an exposed tensor differs from its copy, as far as it can be read."""
        exposed = self.exposed.get(id(tensor))
        if exposed is None or exposed.tensor() is not tensor:
            return False
        if is_freed(tensor) or is_being_recorded_into_a_graph(tensor):
            return False
        return exposed.value is None or not same_bits(exposed.value, tensor)

    def _check_exposed(self, tensor: Tensor, exposed: ExposedTensor) -> int:
        if not self._differs_from_copy(tensor):
            return exposed.ref
        note = "written through memory that was handed out (numpy, dlpack or its storage)"
        ref = self._add_unseen(tensor, [exposed.ref], note)
        self._expose_tensor(tensor, ref)
        return ref

    def _adopt_changed(self, tensor: Tensor, previous: int) -> int:
        if id(tensor) in self.recorder.unsettled or is_empty(tensor):
            self.recorder.unsettled.discard(id(tensor))
            self.recorder.set_ref(tensor, previous)
            return previous
        version = version_of(tensor)
        if self.all_writes_seen(tensor, previous, self.recorder.versions.get(id(tensor), 0), version):
            self.recorder.set_ref(tensor, previous)  # all writes missed its region
            return previous
        if previous not in self.copies and previous not in self.deferred:
            self.lost[previous] = CHANGED
        del self.recorder.refs_by_id[id(tensor)]
        alias = self._find_alias(tensor)  # `set_` takes another tensor's memory, and reaches no mode
        if alias is not None:
            return alias
        return self._add_unseen(tensor, [previous], "written by something the recorder could not see")

    def _adopt_new(self, tensor: Tensor) -> int:
        """Return a ref for a new tensor: an alias of known memory, a gradient, or unseen."""
        alias = self._find_alias(tensor)
        if alias is None:
            alias = autograd_engine.gradient_ref(self.recorder, tensor)
        if alias is not None:
            return alias
        self._expose_owners(tensor)
        return self._add_unseen(tensor, [], "made outside the recording, or where the recorder could not look")

    def alias_of(self, tensor: Tensor) -> int | None:
        """Return a ref for a new tensor over the memory of a recorded value; None for others."""
        with self.recorder.paused():
            return self._find_alias(tensor)

    def _find_alias(self, tensor: Tensor) -> int | None:
        """Add an alias row for a tensor over a known value's memory; None if there is none."""
        self._update_index()
        number = storage_of(tensor)
        if number in self._blocks:
            entries = self._block(tensor, number).entries
            overlapping = [entries.items[region] for region in entries.overlapping(region_of(tensor))]
            near = [(entry.ref, entry.weak) for entry in overlapping]
        else:
            near = self._index.get(number, [])
        for ref, weak in reversed(near):
            other = weak()
            if (
                other is None
                or storage_of(other) != number
                or not self._holds(other, ref)
                or not is_inside(tensor, other)
            ):
                continue
            if not self.changed(other, ref):
                ref = self.recorder.ref_of(other)  # exposed memory may have been written meanwhile
                return self._add_alias(tensor, [ref, ref], (geometry(other),), "the same memory under a new name")
        return None

    def _add_alias(self, tensor: Tensor, refs: list[int], parts: tuple[Any, ...], note: str) -> int:
        ref = self.recorder.add("alias", tensor, refs, (geometry(tensor), *parts), note)
        self.expose_results(tensor)
        return ref

    def _add_unseen(self, tensor: Tensor, refs: list[int], note: str) -> int:
        ref = self.recorder.add("unseen", tensor, refs, (), note)
        self.expose_results(tensor)
        return ref

    # -- the index ---------------------------------------------------------------------------------------------------

    def change_references(self, change: Callable[[Any], Any]) -> None:
        """Replace each weak reference to a tensor by what a function makes of it."""
        for pairs in self._index.values():
            pairs[:] = [(ref, change(weak)) for ref, weak in pairs]
        for block in self._blocks.values():
            for entry in filter(None, block.entries.items):
                entry.weak = change(entry.weak)
        tables: list[dict[int, Any]] = [self.stale, self.exposed]
        self._places[:] = [(ref, change(weak), *addresses) for ref, weak, *addresses in self._places]
        for table in tables:
            table.update([(key, value._replace(tensor=change(value.tensor))) for key, value in table.items()])

    def _update_index(self) -> None:
        recorder, find_ref, versions = self.recorder, self.recorder.find_ref, self.recorder.versions
        for ref, tensor in recorder.values_since(self._rows, self._stored):
            key = id(tensor)
            if (ref in self.copies or ref in self.deferred) and find_ref(key) != ref:
                continue  # it was written since; a copy of one that was not is only the form in which it is kept
            if version_of(tensor) != versions.get(key, 0) and find_ref(key) == ref and key not in recorder.unsettled:
                continue  # written or moved unseen: its next read finds out
            self._index.setdefault(storage_of(tensor), []).append((ref, weakref.ref(tensor)))
        self._rows, self._stored = recorder.count, len(recorder.stored)


CHANGED = "its memory was written by something the recorder could not see"
FREED = "its memory was freed by the model (FSDP does that) before its value was needed"
