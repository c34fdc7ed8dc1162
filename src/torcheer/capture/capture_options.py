"""Capture options: `layers_to_save`, `edits`, `save_gradients`, and readers that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from torcheer.capture import edits as edits_module
from torcheer.capture.live_selection import KnownLater, RunningNames, RunningOp, RunningView
from torcheer.capture.random_states import random_state
from torcheer.capture.record.op_rows import LiveTrace
from torcheer.capture.record.recorder import OUT, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.source_lines import is_user_code
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import leaves, replace_one
from torcheer.capture.torch_state import version_of
from torcheer.capture.values.save_policy import RowPruner, Save, StopEarly
from torcheer.capture.values.saved_gradients import GradientLog
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.models import plain_name
from torcheer.selection import Selector, parse, parse_all


class Requests:
    """Handle each row as it is recorded: apply edits, save values, log gradients, call readers."""

    def __init__(self, recorder: Recorder, trace: LiveTrace, history: Any) -> None:
        self.recorder = recorder
        self.trace = trace
        self.history = history
        self.save = Save()
        self.pruner: RowPruner | None = None
        self.log: GradientLog | None = None
        self.selectors: list[Selector] = []
        self.edits: list[tuple[Selector, Any]] = []
        self._matched_keys: set[Any] = set()  # keys that matched an operation or a module call
        self._selected_nodes: set[int] = set()  # nodes selected by a predicate or a module path
        self._undecided: dict[Any, set[int]] = {}  # key of a predicate -> nodes that it is asked about at the end
        self._edited_nodes: dict[Any, set[int]] = {}  # key -> nodes it edited
        self._addresses: dict[int, str] = {}
        self._module_calls: dict[str, int] = {}
        self._names: RunningNames | None = None
        self._from_end = False  # whether negative positions are wanted: known only after gradients must be hooked
        recorder.on_op = self._on_op
        recorder.on_module = self._on_module

    def read(self, save: Save, save_gradients: bool, edits: Mapping[Any, Any] | None) -> None:
        """Parse and check the options, before anything runs."""
        model, modules = self.recorder.model, dict[str, torch.nn.Module]()
        if model is not None:
            for address, module in model.named_modules():
                self._addresses.setdefault(id(module), plain_name(address))
                modules.setdefault(plain_name(address), module)
            modules.pop("", None)
        self.save = save
        if not isinstance(save.layers, str):
            self.selectors = parse_all(save.layers, modules, "layers_to_save")
        for key, edit in edits_module.check(edits or {}).items():
            self.edits.append((parse(key, modules, "edits"), edit))
        self.recorder.has_edits = bool(self.edits)
        if not save.is_plain:
            window = max((-s.index for s in self.selectors if s.form == "position" and s.index < 0), default=0)
            self.pruner = RowPruner(save, self.recorder, window)
        self.recorder.keeps_gradients = save_gradients
        if save_gradients:
            self.log = self.trace.gradient_log = GradientLog()
        named = [s for s in (*self.selectors, *(s for s, _ in self.edits)) if s.form in ("label", "pattern")]
        patches = any(getattr(edit, "wants_key", False) for _, edit in self.edits)  # they look the layer up by name
        self._names = RunningNames(self.recorder) if named or patches else None
        self._from_end = any(selector.form == "position" and selector.index < 0 for selector in self.selectors)

    # -- as the model runs -------------------------------------------------------------------------------------------

    def _on_op(self, node: int, call: Any, out: Any) -> Any:
        with self.recorder.paused():  # the work of edits, predicates and readers is not part of the model
            return self._handle_op(node, call, out)

    def _handle_op(self, node: int, call: Any, out: Any) -> Any:
        running = self._names.name(node) if self._names is not None else RunningOp(node, call.name, 0, node, 0, 0, 0)
        for selector, edit in self.edits:
            if selector.for_ops and self._matches(selector, running, likely=True):
                out = self._apply_edit(out, selector, edit, running.label)
        wanted = self._is_wanted(running)
        if self.log is not None and (wanted or self._from_end):
            for slot, tensor in enumerate(leaves(out)):
                self.log.hook(tensor, node << SLOT_BITS | slot)
            for tensor in self.recorder.stored[self._stored_logged :]:
                self.log.hook(tensor, -id(tensor))
            self._stored_logged = len(self.recorder.stored)
        if self.pruner is not None:
            self.pruner.finish_row(node, wanted)
            self._stop_if_done()
        self.trace.notify_readers() if self.trace._readers else None
        return out

    _stored_logged = 0

    def _is_wanted(self, running: RunningOp) -> bool:
        if isinstance(self.save.layers, str):
            return self.save.layers == "all"
        return any([self._matches(selector, running, likely=False) for selector in self.selectors if selector.for_ops])

    def _matches(self, selector: Selector, running: RunningOp, likely: bool) -> bool:
        if selector.test is not None:
            matches = self._passes_test(selector, selector.test, running.index, likely)
        else:
            matches = running.likely_matches(selector) if likely else running.may_match(selector)
        if matches and running.index not in self._undecided.get(selector.key, ()):
            self._matched_keys.add(selector.key)
        return matches

    def _passes_test(self, selector: Selector, test: Callable[[Any], object], node: int, must_know: bool) -> bool:
        """Ask a predicate about an operation that just ran; what it cannot say yet, it is asked at the end."""
        try:
            matches = bool(test(RunningView(self.history, self.trace.build(node))))
        except KnownLater as later:
            if must_know:
                raise BadArgument(
                    f"edits: a predicate asked for layer.{later}, which is known only when the run is over. "
                    "Select by label, position, module path or what a layer knows at once, such as its name and shape"
                ) from None
            self._undecided.setdefault(selector.key, set()).add(node)
            return True
        if matches:
            self._selected_nodes.add(node)
        return matches

    def _on_module(self, scope: int, module: torch.nn.Module, out: Any) -> Any:
        with self.recorder.paused():
            return self._handle_module(scope, module, out)

    def _handle_module(self, scope: int, module: torch.nn.Module, out: Any) -> Any:
        address = self._addresses.get(id(module))
        if not address:
            return out
        call = self._module_calls[address] = self._module_calls.get(address, 0) + 1
        kind = type(module).__name__
        for selector, edit in self.edits:
            if selector.for_modules and selector.matches_call(address, call, kind):
                out = self._apply_edit(out, selector, edit, f"{address}:{call}", scope)
        for selector in self.selectors:
            if selector.for_modules and selector.matches_call(address, call, kind):
                self._matched_keys.add(selector.key)
                self._keep_module(out)
        return out

    def _keep_module(self, out: Any) -> None:
        for tensor in leaves(out):
            ref = self.recorder.ref_of(tensor)
            self._selected_nodes.add(ref >> SLOT_BITS)
            if self.pruner is not None and ref >= 0:
                self.pruner.keep_value(ref, tensor)
            if self.log is not None and ref >= 0:
                self.log.hook(tensor, ref)
        self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self.save.stop_early and all(selector.key in self._matched_keys for selector in self.selectors):
            raise StopEarly

    # -- edits -------------------------------------------------------------------------------------------------------

    def _apply_edit(self, out: Any, selector: Selector, edit: Any, label: str, scope: int | None = None) -> Any:
        """Edit the first tensor of a result, or the one that the edit selects."""
        tensors, number = leaves(out), getattr(edit, "output", 0)
        if not tensors:
            return out
        if number >= len(tensors):
            raise BadArgument(f"edits[{selector.key!r}] is for output {number}, but {label} returned {len(tensors)}")
        ref = self.recorder.ref_of(tensors[number])
        if ref < 0:
            return out
        self._matched_keys.add(selector.key)
        self._edited_nodes.setdefault(selector.key, set()).add(ref >> SLOT_BITS)
        apply = (lambda x: edit(x, label)) if getattr(edit, "wants_key", False) else edit
        text = getattr(edit, "__name__", "edited")
        text = "edited by a function" if text == "<lambda>" else text
        as_new_row = scope is not None and not self._ran_in(ref >> SLOT_BITS, scope)  # the module only returned it
        new = self._replace_value(ref, tensors[number], apply, text, as_new_row)
        return replace_one(out, tensors[number], new)

    def _replace_value(
        self, ref: int, old: Tensor, apply: Callable[[Tensor], Tensor], text: str, as_new_row: bool
    ) -> Tensor:
        """Replace a value by its edited version; return the tensor that the model continues with."""
        recorder, node = self.recorder, ref >> SLOT_BITS
        row, state = recorder.row(node), random_state((), {})
        new = apply(old)
        old_meta = meta_of(old)
        new_meta = meta_of(new) if isinstance(new, Tensor) else None
        if new_meta is None or (new_meta.shape, new_meta.dtype) != (old_meta.shape, old_meta.dtype):
            returned = f"{new_meta.shape} {new.dtype}" if new_meta is not None else type(new).__name__
            operation = f"{row.call.name} (operation {node})"
            raise BadArgument(
                f"the edit of {operation} returned {returned}; its output is {old_meta.shape} {old.dtype}"
            )
        if as_new_row or recorder.was_read(ref):
            edit_ref = recorder.add("edit", new, [ref], (apply, state))  # other operations have read the original
            recorder.edited[edit_ref >> SLOT_BITS] = text
            return new
        recorder.edited[node] = f"{recorder.edited[node]}, then {text}" if node in recorder.edited else text
        recorder.edit_functions.setdefault(node, []).append((ref & SLOT_MASK, apply, state))
        if node in recorder.inplace_nodes and any(old is tensor for tensor in leaves((row.args, row.kwargs))):
            # In place: the model may continue with the tensor it passed in. But writing to it would invalidate what
            # autograd saved of it, and around torch's own modules the returned tensor is the one used.
            if not (
                old.requires_grad and torch.is_grad_enabled() and row.code is not None and not is_user_code(row.code)
            ):
                old.copy_(new)
                recorder.set_ref(old, ref)
                return old
            recorder.refs_by_id.pop(id(old), None)
        recorder.rows[node * WIDTH + OUT] = replace_one(row.out, old, new)
        if recorder.saved is not None and ref in recorder.saved:
            recorder.saved[ref] = (new, version_of(new))
        recorder.set_ref(new, ref)
        return new

    def _ran_in(self, node: int, scope: int) -> bool:
        inner = self.recorder.row(node).scope
        while inner > scope:
            inner = self.recorder.scopes[4 * inner]
        return inner == scope

    # -- at the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Release values that no selector wanted after all; raise for keys that matched nothing."""
        if self.pruner is not None:
            positions = {s.index for s in self.selectors if s.form == "position"}
            self.pruner.finish(self.recorder.count, positions)
            self._matched_keys |= {
                s.key for s in self.selectors if s.form == "position" and -self.recorder.count <= s.index < 0
            }
        if self.trace.stopped:
            return
        self._prune()
        for selector in (*self.selectors, *(s for s, _ in self.edits)):
            if selector.key not in self._matched_keys and selector.form not in ("all", "none"):
                self._raise_unmatched(selector)
        self._check_edits()

    def _prune(self) -> None:
        if self.pruner is None or not any(s.form in ("label", "pattern") or s.test for s in self.selectors):
            return
        wanted = set(self._selected_nodes)
        for selector in self.selectors:
            nodes = self._nodes(selector)
            wanted |= nodes
            if not nodes and selector.form == "label":
                self._matched_keys.discard(selector.key)
            elif nodes and selector.test is not None:
                self._matched_keys.add(selector.key)
        assert self.recorder.saved is not None
        memory = self.recorder.memory
        for values in (self.recorder.saved, memory.copies, memory.deferred):
            for ref in [ref for ref in values if ref >= 0 and ref >> SLOT_BITS not in wanted]:
                del values[ref]

    def _nodes(self, selector: Selector) -> set[int]:
        if selector.form == "position":
            return {selector.index % max(self.recorder.count, 1)}
        if selector.form == "all":
            return set(range(self.recorder.count))
        if selector.test is not None:
            undecided = self._undecided.get(selector.key, ())
            return {node for node in undecided if selector.test(self.history[node])}
        if selector.form in ("module", "class", "none"):
            return set()
        try:
            return set(self.history.indices(selector.key))
        except UnknownLayer:
            return set()

    def _raise_unmatched(self, selector: Selector) -> None:
        """Raise UnknownLayer for a key that matched no layer, with the history attached."""
        error: UnknownLayer
        try:
            self.history.indices(selector.key)
            error = UnknownLayer(f"{selector.key!r} was not reached while the model ran")
        except UnknownLayer as unknown:
            error = unknown
        error.history = self.history  # type: ignore[attr-defined]
        raise error

    def _check_edits(self) -> None:
        for selector, _ in self.edits:
            if selector.form not in ("label", "pattern"):
                continue
            wanted, edited = self._nodes(selector), self._edited_nodes.get(selector.key, set())
            if wanted != edited:
                raise BadArgument(
                    f"{selector.key!r} turned out to mean operations {sorted(wanted)}, but {sorted(edited)} were "
                    "edited: loops are numbered when the run is over. Edit by position, module path or a function "
                    "instead"
                )
