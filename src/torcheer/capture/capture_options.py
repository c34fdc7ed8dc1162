"""What a capture was asked for beyond the plain recording: some layers only, edits, gradients, readers that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from torcheer.capture import edits as edits_module
from torcheer.capture.live_selection import Running, RunningNames, Selector, parse
from torcheer.capture.record.op_rows import LiveTrace, plain_address
from torcheer.capture.record.recorder import OUT, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.source_lines import is_users
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import leaves, swap
from torcheer.capture.torch_state import random_state, version_of
from torcheer.capture.values.save_policy import Keeper, Save, StopEarly
from torcheer.capture.values.saved_gradients import GradientLog
from torcheer.errors import BadArgument, UnknownLayer


class Requests:
    """Stands behind a recorder and handles each row as it is made."""

    def __init__(self, recorder: Recorder, trace: LiveTrace, history: Any) -> None:
        self.recorder = recorder
        self.trace = trace
        self.history = history
        self.save = Save()
        self.keeper: Keeper | None = None
        self.log: GradientLog | None = None
        self.selectors: list[Selector] = []
        self.edits: list[tuple[Selector, Any]] = []
        self._met: set[Any] = set()  # keys that meant something
        self._chosen: set[int] = set()  # nodes that a function or a module path chose
        self._edited: dict[Any, set[int]] = {}  # key -> nodes it changed
        self._addresses: dict[int, str] = {}
        self._module_calls: dict[str, int] = {}
        self._names: RunningNames | None = None
        self._from_end = False  # whether positions from the end are wanted, which are known too late to listen then
        recorder.after = self._after
        recorder.after_module = self._after_module

    def read(self, save: Save, save_gradients: bool, edits: Mapping[Any, Any] | None) -> None:
        """Understand what was asked for, before anything runs."""
        model = self.recorder.model
        if model is not None:
            for address, module in model.named_modules():
                self._addresses.setdefault(id(module), plain_address(address))
        addresses = set(self._addresses.values()) - {""}
        self.save = save
        if not isinstance(save.layers, str):
            if not isinstance(save.layers, Iterable):
                raise BadArgument(f"layers_to_save={save.layers!r}: give 'all', 'none' or a list of layers")
            self.selectors = [parse(key, addresses) for key in save.layers]
        for key, edit in edits_module.check(edits or {}).items():
            selector = parse(key, addresses)
            if selector.kind == "position" and selector.index < 0:
                raise BadArgument(
                    f"edits[{key}]: positions from the end are not known while the model runs; count from 0"
                )
            self.edits.append((selector, edit))
        self.recorder.has_edits = bool(self.edits)
        if not save.is_plain:
            window = max((-s.index for s in self.selectors if s.kind == "position" and s.index < 0), default=0)
            self.keeper = Keeper(save, self.recorder, window)
        if save_gradients:
            self.log = self.trace.gradient_log = GradientLog()
        named = [s for s in (*self.selectors, *(s for s, _ in self.edits)) if s.kind in ("label", "pattern")]
        patches = any(getattr(edit, "wants_key", False) for _, edit in self.edits)  # they go by the layer's name
        self._names = RunningNames(self.recorder) if named or patches else None
        self._from_end = any(selector.kind == "position" and selector.index < 0 for selector in self.selectors)

    # -- as the model runs -------------------------------------------------------------------------------------------

    def _after(self, node: int, call: Any, out: Any) -> Any:
        with self.recorder.unseen():  # what edits, tests and readers do is not part of the model
            return self._ran(node, call, out)

    def _ran(self, node: int, call: Any, out: Any) -> Any:
        running = self._names.name(node) if self._names is not None else Running(node, call.name, 0, node, 0, 0, 0)
        for selector, edit in self.edits:
            if selector.for_ops and self._means(selector, running, likely=True):
                out = self._edit(out, selector, edit, running.label)
        wanted = self._is_wanted(running)
        if self.log is not None and (wanted or self._from_end):
            for slot, tensor in enumerate(leaves(out)):
                self.log.listen(tensor, node << SLOT_BITS | slot)
            for tensor in self.recorder.stored[self._stored_heard :]:
                self.log.listen(tensor, -id(tensor))
            self._stored_heard = len(self.recorder.stored)
        if self.keeper is not None:
            self.keeper.op(node, wanted)
            self._stop_if_done()
        self.trace.tell() if self.trace._readers else None
        return out

    _stored_heard = 0

    def _is_wanted(self, running: Running) -> bool:
        if isinstance(self.save.layers, str):
            return self.save.layers == "all"
        return any([self._means(selector, running, likely=False) for selector in self.selectors if selector.for_ops])

    def _means(self, selector: Selector, running: Running, likely: bool) -> bool:
        if selector.kind == "test":
            assert selector.test is not None
            found = bool(selector.test(self.trace.build(running.index)))
            if found:
                self._chosen.add(running.index)
        else:
            found = running.is_likely(selector) if likely else running.may_be(selector)
        if found:
            self._met.add(selector.key)
        return found

    def _after_module(self, scope: int, module: torch.nn.Module, out: Any) -> Any:
        with self.recorder.unseen():
            return self._module_returned(scope, module, out)

    def _module_returned(self, scope: int, module: torch.nn.Module, out: Any) -> Any:
        address = self._addresses.get(id(module))
        if not address:
            return out
        call = self._module_calls[address] = self._module_calls.get(address, 0) + 1
        for selector, edit in self.edits:
            if selector.for_modules and _is_module(selector, address, call):
                out = self._edit(out, selector, edit, f"{address}:{call}", scope)
        for selector in self.selectors:
            if selector.for_modules and _is_module(selector, address, call):
                self._met.add(selector.key)
                self._keep_module(out)
        return out

    def _keep_module(self, out: Any) -> None:
        for tensor in leaves(out):
            ref = self.recorder.ref_of(tensor)
            self._chosen.add(ref >> SLOT_BITS)
            if self.keeper is not None and ref >= 0:
                self.keeper.keep_value(ref, tensor)
            if self.log is not None and ref >= 0:
                self.log.listen(tensor, ref)
        self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self.save.stop_early and all(selector.key in self._met for selector in self.selectors):
            raise StopEarly

    # -- edits -------------------------------------------------------------------------------------------------------

    def _edit(self, out: Any, selector: Selector, edit: Any, label: str, scope: int | None = None) -> Any:
        """Edit the first tensor of a result, or the one the edit names."""
        tensors, number = leaves(out), getattr(edit, "output", 0)
        if not tensors:
            return out
        if number >= len(tensors):
            raise BadArgument(f"edits[{selector.key!r}] is for output {number}, but {label} returned {len(tensors)}")
        ref = self.recorder.ref_of(tensors[number])
        if ref < 0:
            return out
        self._met.add(selector.key)
        self._edited.setdefault(selector.key, set()).add(ref >> SLOT_BITS)
        apply = (lambda x: edit(x, label)) if getattr(edit, "wants_key", False) else edit
        text = getattr(edit, "__name__", "edited")
        text = "edited by a function" if text == "<lambda>" else text
        apart = scope is not None and not self._ran_in(ref >> SLOT_BITS, scope)  # the module only passed it on
        new = self._exchange(ref, tensors[number], apply, text, apart)
        return swap(out, tensors[number], new)

    def _exchange(self, ref: int, old: Tensor, apply: Callable[[Tensor], Tensor], text: str, apart: bool) -> Tensor:
        """Put an edited tensor in the place of a value that was just made; the tensor the model goes on with."""
        recorder, node = self.recorder, ref >> SLOT_BITS
        row, state = recorder.row(node), random_state((), {})
        new = apply(old)
        was = meta_of(old)
        now = meta_of(new) if isinstance(new, Tensor) else None
        if now is None or (now.shape, now.dtype) != (was.shape, was.dtype):
            got = f"{now.shape} {new.dtype}" if now is not None else type(new).__name__
            what = f"{row.call.name} (operation {node})"
            raise BadArgument(f"the edit of {what} returned {got}; its output is {was.shape} {old.dtype}")
        if apart or recorder.was_read(ref):
            made = recorder.add("edit", new, [ref], (apply, state))  # others have read the value as it was
            recorder.edited[made >> SLOT_BITS] = text
            return new
        recorder.edited[node] = f"{recorder.edited[node]}, then {text}" if node in recorder.edited else text
        recorder.edit_functions.setdefault(node, []).append((ref & SLOT_MASK, apply, state))
        if node in recorder.wrote and any(old is tensor for tensor in leaves((row.args, row.kwargs))):
            # In place: the model may go on with the tensor it passed in. But writing to it would spoil what autograd
            # kept of it, and around a module of torch's own it is the returned tensor that counts.
            if not (old.requires_grad and torch.is_grad_enabled() and row.code is not None and not is_users(row.code)):
                old.copy_(new)
                recorder.know(old, ref)
                return old
            recorder.known.pop(id(old), None)
        recorder.rows[node * WIDTH + OUT] = swap(row.out, old, new)
        if recorder.saved is not None and ref in recorder.saved:
            recorder.saved[ref] = (new, version_of(new))
        recorder.know(new, ref)
        return new

    def _ran_in(self, node: int, scope: int) -> bool:
        inner = self.recorder.row(node).scope
        while inner > scope:
            inner = self.recorder.scopes[4 * inner]
        return inner == scope

    # -- at the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The names are certain now: let go of what was kept for nothing, complain about keys that meant nothing."""
        if self.keeper is not None:
            positions = {s.index for s in self.selectors if s.kind == "position"}
            self.keeper.finish(self.recorder.count, positions)
            self._met |= {s.key for s in self.selectors if s.kind == "position" and -self.recorder.count <= s.index < 0}
        if self.trace.stopped:
            return
        self._prune()
        for selector in (*self.selectors, *(s for s, _ in self.edits)):
            if selector.key not in self._met:
                self._refuse(selector)
        self._check_edits()

    def _prune(self) -> None:
        if self.keeper is None or all(s.kind not in ("label", "pattern") for s in self.selectors):
            return
        meant = set(self._chosen)
        for selector in self.selectors:
            found = self._nodes(selector)
            meant |= found
            if not found and selector.kind == "label":
                self._met.discard(selector.key)
        assert self.recorder.saved is not None
        memory = self.recorder.memory
        for kept in (self.recorder.saved, memory.copies, memory.deferred):
            for ref in [ref for ref in kept if ref >= 0 and ref >> SLOT_BITS not in meant]:
                del kept[ref]

    def _nodes(self, selector: Selector) -> set[int]:
        if selector.kind == "position":
            return {selector.index % max(self.recorder.count, 1)}
        if selector.kind == "test" or selector.kind == "module":
            return set()
        try:
            return set(self.history.indices(selector.key))
        except UnknownLayer:
            return set()

    def _refuse(self, selector: Selector) -> None:
        """No layer was meant by this key: say so, with the history at hand."""
        error: UnknownLayer
        try:
            self.history.indices(selector.key)
            error = UnknownLayer(f"{selector.key!r} was not reached while the model ran")
        except UnknownLayer as found:
            error = found
        error.history = self.history  # type: ignore[attr-defined]
        raise error

    def _check_edits(self) -> None:
        for selector, _ in self.edits:
            if selector.kind not in ("label", "pattern"):
                continue
            meant, done = self._nodes(selector), self._edited.get(selector.key, set())
            if meant != done:
                raise BadArgument(
                    f"{selector.key!r} turned out to mean operations {sorted(meant)}, but {sorted(done)} were edited: "
                    "loops are numbered when the run is over. Edit by position, module path or a function instead"
                )


def _is_module(selector: Selector, address: str, call: int) -> bool:
    if selector.kind == "module":
        return selector.name == address and selector.call in (0, call)
    return fnmatchcase(address, selector.name)
