"""Copy-on-write: saved values are references until somebody is about to write to their memory.

Before a write that torch shows us, the saved values that share the memory are copied, or put off where a small part of
a large one is written (`film`). Tensors that look at the same memory under another name become *stale*; when one is
read again, an `alias` row says where its new value came from.
Writes nobody showed us are found by torch's version counter when the tensor is next read, and become `unseen` rows.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torcheer.capture.record import autograd_engine
from torcheer.capture.record.function_table import Call
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_facts import grad_fn_name, meta_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import version_of
from torcheer.capture.values.byte_history import Deferred, Film, anchor_of
from torcheer.capture.values.memory_layout import (
    Place,
    apart,
    geometry,
    inside,
    is_being_recorded_into_a_graph,
    is_empty,
    is_freed,
    place_of,
    storage_of,
    weak_storage,
)
from torcheer.capture.values.storage_writes import (
    MOST_MISSES,
    Block,
    Entry,
    Reached,
    Stale,
    can_wait,
    is_raw,
    nbytes,
    writes_to,
)
from torcheer.capture.values.value_copies import graph_copy, same_bits
from torcheer.capture.values.written_regions import BY_INDEX, Window, window_of

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder


class Leaked(NamedTuple):
    """A tensor whose memory is in other hands."""

    tensor: weakref.ref[Tensor]
    ref: int  # its value at the last look
    value: Tensor | None  # None: it could not be read


SMALL_BYTES = 1 << 14  # a value of this size is copied sooner than it is known which part of it is written


class Memory:
    """Who shares memory with whom, found out only once something writes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)  # no cycle: a dropped history frees its tensors at once
        self.copies: dict[int, Tensor] = {}  # ref -> the value before its memory was written
        self.deferred: dict[int, Deferred] = {}  # ref -> such a value that is made when it is asked for
        self.grad_fns: dict[int, str] = {}  # ref -> its autograd node's name, where a write replaced it
        self.lost: dict[int, str] = {}  # ref -> why its value is gone
        self.stale: dict[int, Stale] = {}  # id of a tensor whose memory was written under another name
        self.leaked: dict[int, Leaked] = {}  # id of a tensor whose memory was handed out
        self.copied_bytes = 0  # of all copies made before writes
        self._handed: dict[int, StorageWeakRef] = {}  # storage that was handed out, held weakly
        self._index: dict[int, list[tuple[int, Any]]] = {}  # storage nobody wrote to -> (ref, weak tensor)
        self._blocks: dict[int, Block] = {}  # storage that was written
        self._rows = 0  # rows already in the index
        self._stored = 0  # stored tensors already in the index

    @property
    def recorder(self) -> Recorder:
        """The recorder whose memory this is."""
        recorder = self._recorder()
        assert recorder is not None
        return recorder

    # -- writes we see -----------------------------------------------------------------------------------------------

    def protect(self, call: Call, args: tuple[Any, ...], written: list[Tensor]) -> list[Window]:
        """Keep the saved values that a write to these tensors, whose refs are known, would change."""
        if len(written) == 1 and (call.name not in BY_INDEX or nbytes(written[0]) <= SMALL_BYTES):
            shared = self._protect_fresh(written[0])
            if shared is not None and not shared:
                return []
        else:
            shared = None
        with self.recorder.unseen():  # subclasses and other recorders need not know that we look
            windows = [window_of(call, args, tensor) for tensor in written]
            for window in windows:
                if shared is None:
                    self._protect(window)
                for ref, other in shared or ():
                    self._copy(ref, other, other)
                    self._overtake(ref, other, window, self._block(window.tensor, window.number))
        return windows

    def _protect_fresh(self, tensor: Tensor) -> list[tuple[int, Tensor]] | None:
        """The common case, without an index: memory of its own, and young, so that only recent rows can share it.

        The tensor's own value is copied; the others that share its memory are returned. None: the case is another one.
        """
        recorder = self.recorder
        ref = recorder.known.get(id(tensor), -1)
        node = ref >> SLOT_BITS
        if ref < 0 or recorder.count - node > 8 or recorder.saved is not None or type(tensor) is not Tensor:
            return None
        if not recorder.made_memory(node, tensor) or tensor._is_view() or tensor.is_inference():
            return None
        storage = tensor.untyped_storage()
        number = storage._cdata
        if number in self._blocks or storage.nbytes() != tensor.numel() * tensor.element_size():
            return None
        shared = []
        for row in range(node, recorder.count):
            for slot, other in enumerate(recorder.outputs(row)):
                if other is not tensor and storage_of(other) == number:
                    shared.append((row << SLOT_BITS | slot, other))
        if ref not in self.copies and ref not in self.lost:
            with recorder.unseen():
                self._hold(ref, tensor, graph_copy(tensor))
        return shared

    def _protect(self, window: Window) -> None:
        self._bring_up_to_date()
        recorder, block = self.recorder, self._block(window.tensor, window.number)
        reached: list[Reached] = []
        done: list[int] = []
        for number in block.entries.overlapping(window.place):
            entry: Entry = block.entries.items[number]
            ref, other = entry.ref, entry.weak()
            if other is None and recorder.saved and ref in recorder.saved:
                other = recorder.saved[ref][0]  # kept without its graph, the original is gone
            if other is None or storage_of(other) != window.number:  # gone, or its memory was exchanged
                done.append(number)
            elif entry.missed < MOST_MISSES and other is not window.tensor and apart(entry.place, window.place):
                entry.missed += 1
            else:
                done.append(number)
                reached.append(Reached(ref, other, entry.place))
        self._keep_all([value for value in reached if recorder.keeps(value.ref)], window, block)
        for ref, other, _ in reached:
            self._overtake(ref, other, window, block)
        for number in done:  # only now: until they are kept, they are asked for
            block.entries.remove(number)

    def _overtake(self, ref: int, other: Tensor, window: Window, block: Block) -> None:
        """Another tensor holds what is about to be written: it will have to look again."""
        if other is window.tensor or not self._holds(other, ref) or self._written_unseen(other):
            return
        self.stale[id(other)] = Stale(weakref.ref(other), ref, block, len(block.writes.items))
        block.stale.append(id(other))
        self.recorder.known.pop(id(other), None)
        self.leaked.pop(id(other), None)

    def _keep_all(self, kept: list[Reached], window: Window, block: Block) -> None:
        """Copy values, or put them off if they are much larger than what is written."""
        if not kept and block.film is None:
            return
        size = block.film.bytes if block.film is not None else 0
        for _, _, place in kept:
            size += place.bytes if place is not None else 0
        if size <= 4 * window.bytes or not can_wait(window):
            self._settle(block)
            for ref, other, _ in kept:
                self._copy(ref, other, self._kept_form(ref, other))
            return
        for ref, other, place in kept:
            form = self._kept_form(ref, other)
            if not self._is_gone(ref, other, place) and not self._defer(ref, form, place, window, block):
                self._copy(ref, other, form)
        if block.film is not None:
            assert window.place is not None
            self.copied_bytes += block.film.about_to_write(window.part, window.place, window.index)

    def _kept_form(self, ref: int, other: Tensor) -> Tensor:
        """A value as it is kept: with its graph or without."""
        saved = self.recorder.saved.pop(ref, None) if self.recorder.saved else None
        return saved[0] if saved is not None else other

    def _is_gone(self, ref: int, tensor: Tensor, place: Place | None = None) -> bool:
        """Whether there is nothing to be copied, or no need."""
        if ref not in self.copies and ref not in self.deferred and ref not in self.lost:
            if is_freed(tensor) if place is None else place.end > tensor.untyped_storage().nbytes():
                self.lost[ref] = FREED
            elif self.changed(tensor, ref):
                self.lost[ref] = CHANGED
            else:
                return False
        return True

    def _copy(self, ref: int, tensor: Tensor, form: Tensor) -> None:
        """Copy the value of a tensor, in the form in which it is kept."""
        if not self._is_gone(ref, tensor):
            self._hold(ref, tensor, graph_copy(form))

    def _hold(self, ref: int, tensor: Tensor, copied: Tensor) -> None:
        self.copies[ref] = copied
        self.grad_fns[ref] = grad_fn_name(tensor) if tensor.requires_grad else ""
        self.copied_bytes += nbytes(copied)

    def _defer(self, ref: int, form: Tensor, place: Place | None, window: Window, block: Block) -> bool:
        """Put a value off; False where it must be copied after all."""
        if place is None or window.number in self._handed or (form is not window.tensor and not is_raw(form, place)):
            return False
        anchor = anchor_of(form) if form.requires_grad else None
        if form.requires_grad and anchor is None:
            return False
        if block.film is None:
            block.film = Film(form)
        self.deferred[ref] = block.film.defer(ref, place, form.dtype, anchor)
        self.grad_fns[ref] = grad_fn_name(form) if anchor is not None else ""
        return True

    def _settle(self, block: Block) -> None:
        """Make every value that was put off, where that costs no more than to remember one write more."""
        film, block.film = block.film, None
        if film is None:
            return
        for ref in film.waiting:
            value = self.deferred.pop(ref, None)
            if value is not None:
                self.copies[ref] = copied = value.value()
                self.copied_bytes += nbytes(copied)

    def _block(self, tensor: Tensor, number: int) -> Block:
        """What is known of a storage, those that were met since it was last asked included."""
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = Block(tensor)
        for ref, weak in self._index.pop(number, ()):
            other = weak()
            if other is not None or (self.recorder.saved and ref in self.recorder.saved):
                place = place_of(other if other is not None else self.recorder.saved[ref][0])  # type: ignore[index]
                block.entries.append(place, Entry(ref, weak, place))
        return block

    def as_it_was(self, ref: int, tensor: Any) -> Any:
        """A tensor of a row, its copy, or its facts: what stands for it since its memory was written."""
        if ref in self.deferred:
            return replace(meta_of(tensor), requires_grad=self.deferred[ref].requires_grad)
        return self.copies.get(ref, tensor)

    def kept(self, ref: int) -> Tensor | None:
        """The value before its memory was written, if it was."""
        found = self.copies.get(ref)
        if found is None and ref in self.deferred:
            with self.recorder.unseen():
                return self.deferred[ref].value()
        return found

    def take(self, ref: int) -> Tensor | None:
        """Such a value, which is then no longer kept here."""
        found = self.kept(ref)
        self.drop(ref)
        return found

    def drop(self, ref: int) -> None:
        """Forget such a value."""
        self.copies.pop(ref, None)
        self.deferred.pop(ref, None)

    def finish(self) -> None:
        """The recording is over: what is written from now on is not seen."""
        with self.recorder.unseen():
            for block in self._blocks.values():
                self._seal(block)

    def _seal(self, block: Block) -> None:
        if block.film is not None:
            block.film.seal()
            block.film = None

    def changed(self, tensor: Tensor, ref: int) -> bool:
        """Whether something unseen wrote to a tensor, or exchanged its memory, after it took this value."""
        recorder, key = self.recorder, id(tensor)
        if recorder.known.get(key) != ref or key in recorder.unsettled or is_empty(tensor):
            return False
        before, now = recorder.versions.get(key, 0), version_of(tensor)
        return before != now and not self.accounts_for(tensor, ref, before, now)

    def accounts_for(self, tensor: Tensor, ref: int, before: int, now: int) -> bool:
        """Whether all writes that torch counted were seen, and to other parts of the memory in which a value lies."""
        block = self._blocks.get(storage_of(tensor))
        if block is None or not block.accounts_for(before, now):
            return False
        place = place_of(tensor)
        entries = (block.entries.items[number] for number in block.entries.overlapping(place))
        return any(entry.ref == ref and entry.place == place for entry in entries)

    def _holds(self, tensor: Tensor, ref: int) -> bool:
        """Whether a value is, as far as is known, what this tensor still holds."""
        leaked = self.leaked.get(id(tensor))
        if leaked is not None and leaked.tensor() is tensor:
            return leaked.ref == ref
        return self.recorder.known.get(id(tensor)) == ref

    def written(self, windows: list[Window]) -> None:
        """After the write: the stale learn who wrote, and siblings that torch counted one more write for nothing."""
        for window in windows:
            block, tensor = self._blocks.get(window.number), window.tensor
            if block is not None and storage_of(tensor) == window.number:  # else it took other memory: `.data = …`
                block.saw(window.version, version_of(tensor))
                block.writes.append(window.place, (self.recorder.known[id(tensor)], geometry(tensor), window.place))

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
            block = self._block(tensor, number)
            self._seal(block)
            keys, block.stale = block.stale, []
            for key in keys:
                stale = self.stale.get(key)
                old = stale.tensor() if stale is not None else None
                if old is not None:
                    self._adopt(old)
            self._bring_up_to_date()
            for entry in filter(None, list(self._block(tensor, number).entries.items)):
                other = entry.weak()
                if other is None or storage_of(other) != number or not self._holds(other, entry.ref):
                    continue
                if not self.changed(other, entry.ref):  # else its next read will tell
                    self._leak_one(other, entry.ref)
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
        if ref in self.copies or ref in self.deferred or ref in self.lost or not self.recorder.keeps(ref):
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
            if self._blocks.get(storage_of(tensor)) is not stale.block:  # `set_` gave it other memory
                return self._from_shared_memory(tensor)
            writes = writes_to(tensor, stale)
            if not writes:  # they went to cells between its own
                self.recorder.know(tensor, stale.ref)
                self._index.setdefault(storage_of(tensor), []).append((stale.ref, stale.tensor))
                self.spread(tensor)
                return stale.ref
            refs = [stale.ref, *(ref for ref, _, _ in writes)]
            return self._alias(
                tensor, refs, tuple(where for _, where, _ in writes), "its memory was written under another name"
            )
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
        now = version_of(tensor)
        if self.accounts_for(tensor, previous, self.recorder.versions.get(id(tensor), 0), now):
            self.recorder.know(tensor, previous)  # all writes were to other parts of the memory
            return previous
        if previous not in self.copies and previous not in self.deferred:
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
            alias = autograd_engine.gradient(self.recorder, tensor)
        if alias is not None:
            return alias
        return self._unseen(tensor, [], "made outside the recording, or where the recorder could not look")

    def alias_of(self, tensor: Tensor) -> int | None:
        """A ref for a new tensor, if it lies in the memory of a value that was computed here."""
        with self.recorder.unseen():
            return self._same_memory(tensor)

    def _same_memory(self, tensor: Tensor) -> int | None:
        """A ref for a tensor that lies in the memory of a value we know; None if there is none."""
        self._bring_up_to_date()
        number = storage_of(tensor)
        if number in self._blocks:
            entries = self._block(tensor, number).entries
            found = [entries.items[place] for place in entries.overlapping(place_of(tensor))]
            near = [(entry.ref, entry.weak) for entry in found]
        else:
            near = self._index.get(number, [])
        for ref, weak in reversed(near):
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
        recorder, known, versions = self.recorder, self.recorder.known, self.recorder.versions
        for ref, tensor in recorder.values_since(self._rows, self._stored):
            if ref in self.copies or ref in self.deferred:
                continue
            key = id(tensor)
            if version_of(tensor) != versions.get(key, 0) and known.get(key) == ref and key not in recorder.unsettled:
                continue  # written or moved unseen: its next read will tell
            self._index.setdefault(storage_of(tensor), []).append((ref, weakref.ref(tensor)))
        self._rows, self._stored = recorder.count, len(recorder.stored)


CHANGED = "its memory was written by something the recorder could not see"
FREED = "its memory was freed by the model (FSDP does that) before its value was needed"
