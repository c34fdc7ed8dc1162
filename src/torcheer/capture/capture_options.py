"""Capture options: `layers_to_save`, `edits`, `save_gradients`, and readers that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.capture import edits as edits_module
from torcheer.capture.edit_targets import EditTarget, EditTargets
from torcheer.capture.live_selection import KnownLater, RunningNames, RunningOp, RunningView
from torcheer.capture.random_states import random_state
from torcheer.capture.record.op_rows import LiveTrace
from torcheer.capture.record.recorder import OUT, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.source_lines import is_user_code
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import leaves, replace_one
from torcheer.capture.tensor_parts import TensorPart
from torcheer.capture.torch_state import DisableTorchFunction, version_of
from torcheer.capture.values.save_policy import RowPruner, Save, StopEarly
from torcheer.capture.values.saved_gradients import GradientLog
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.models import plain_name
from torcheer.selection import Selector, parse, parse_all

if TYPE_CHECKING:
    from torcheer.roles import Place


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
        self.edits = EditTargets({})
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
        self.edits = EditTargets(modules)
        for key, several in edits_module.check(edits or {}).items():
            for edit in several:
                self.edits.add(parse(key, modules, "edits"), edit)
        self.recorder.has_edits = bool(self.edits.all)
        self.edits.saved = [place for selector in self.selectors for place in selector.places]
        if self.edits.need_entries:
            self.recorder.on_entry = self._on_entry
        if not save.is_plain:
            window = max((-s.index for s in self.selectors if s.form == "position" and s.index < 0), default=0)
            self.pruner = RowPruner(save, self.recorder, window)
        self.recorder.keeps_gradients = save_gradients
        if save_gradients:
            self.log = self.trace.gradient_log = GradientLog()
        targets = self.edits.all
        named = [s for s in (*self.selectors, *(t.selector for t in targets)) if s.form in ("label", "pattern")]
        patches = any(getattr(t.edit.function, "wants_key", False) for t in targets)  # they look the layer up by name
        self._names = RunningNames(self.recorder) if named or patches else None
        self._from_end = any(selector.form == "position" and selector.index < 0 for selector in self.selectors)

    # -- as the model runs -------------------------------------------------------------------------------------------

    def _on_op(self, node: int, call: Any, out: Any) -> Any:
        with self.recorder.paused():  # the work of edits, predicates and readers is not part of the model
            return self._handle_op(node, call, out)

    def _handle_op(self, node: int, call: Any, out: Any) -> Any:
        running = self._names.name(node) if self._names is not None else RunningOp(node, call.name, 0, node, 0, 0, 0)
        for target in self.edits.all:
            if target.inside and target.is_attention(call.name) and self._is_inside(target.inside):
                out = self._apply_edit(out, target, running.label, None, call.name)
            elif target.selector.for_ops and self._matches(target.selector, running, likely=True):
                out = self._apply_edit(out, target, running.label, None, call.name)
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
        for target in self.edits.all:
            if (place := target.place(address, call, kind, "output")) is not None:
                out = self._apply_edit(out, target, _name_in_history(target, address, call), place, kind, scope)
        for selector in self.selectors:
            if selector.for_modules and selector.matches_call(address, call, kind):
                self._matched_keys.add(selector.key)
                self._keep_module(out)
        return out

    def _on_entry(self, scope: int, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        address = self._addresses.get(id(module), "")
        self.edits.find_heads(address, module, args, kwargs)
        with self.recorder.paused():
            if self.recorder.scopes[4 * scope] < 0:
                self.edits.begin_call(args, kwargs)
            return self._handle_entry(address, module, args, kwargs) if address else (args, kwargs)

    def _handle_entry(self, address: str, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Edit and keep what a module is about to receive."""
        call, kind, received = self._module_calls.get(address, 0) + 1, type(module).__name__, (args, kwargs)
        for target in self.edits.all:
            if (place := target.place(address, call, kind, "input")) is not None:
                label = _name_in_history(target, address, call)
                received = self._apply_edit(received, target, label, place, kind, as_new_row=True)
        for selector in self.selectors:
            if selector.place_at(address, "input") is not None and selector.call in (0, call):
                self._matched_keys.add(selector.key)
                self._keep_module(leaves(received)[:1])
        return received

    def _is_inside(self, path: str) -> bool:
        scope = self.recorder.scope
        while scope >= 0:
            scope, module = self.recorder.scopes[4 * scope : 4 * scope + 2]
            if self._addresses.get(id(module)) == path:
                return True
        return False

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

    def _apply_edit(
        self,
        out: Any,
        target: EditTarget,
        label: str,
        place: Place | None,
        name: str,
        scope: int | None = None,
        *,
        as_new_row: bool = False,
    ) -> Any:
        """Edit the first tensor of a result, or the one that the edit selects; or its gradient."""
        tensors, edit = leaves(out), target.edit
        if not tensors:
            return out
        if edit.output >= len(tensors):
            raise BadArgument(f"edits[{target.key!r}] is for output {edit.output}, but {label} returned {len(tensors)}")
        tensor = tensors[edit.output]
        ref = self.recorder.ref_of(tensor)
        if ref < 0:
            return out
        self._matched_keys.add(target.key)
        self._edited_nodes.setdefault(target.key, set()).add(ref >> SLOT_BITS)
        part = self.edits.part(target, place, tensor, name)
        if part is not None and part.is_empty:
            return out
        apply = _application(target, part, label)
        if edit.at == "gradient":
            self._edit_gradient(tensor, ref, apply, target, label)
            return out
        if scope is not None:  # a module that only returned what another made
            as_new_row = not self._ran_in(ref >> SLOT_BITS, scope)
        new = self._replace_value(ref, tensor, apply, edit.text, as_new_row)
        return replace_one(out, tensor, new)

    def _edit_gradient(self, tensor: Tensor, ref: int, apply: Any, target: EditTarget, label: str) -> None:
        """Hook a value, so that backward sends on what the edit makes of its gradient."""
        if not tensor.requires_grad:
            raise BadArgument(
                f"edits[{target.key!r}] is for the gradient of {label}, which requires none: run with grad enabled, on "
                "a model or inputs that require it"
            )

        def change(gradient: Tensor) -> Tensor:
            with DisableTorchFunction():  # backward may run inside a recording
                return apply(gradient)  # type: ignore[no-any-return]

        tensor.register_hook(change)
        if self.log is not None:
            self.log.hook_again(tensor, ref)
        node, edited = ref >> SLOT_BITS, self.recorder.edited
        edited[node] = f"{edited[node]}, then {target.edit.text}" if node in edited else target.edit.text

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
        for selector in (*self.selectors, *(target.selector for target in self.edits.all)):
            if selector.key not in self._matched_keys and selector.form not in ("all", "none"):
                self._raise_unmatched(selector)
        self._check_edits()
        self.edits.check_reached()

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
        if selector.form in ("module", "class", "none", "role"):
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
        for selector in (target.selector for target in self.edits.all):
            if selector.form not in ("label", "pattern"):
                continue
            wanted, edited = self._nodes(selector), self._edited_nodes.get(selector.key, set())
            if wanted != edited:
                raise BadArgument(
                    f"{selector.key!r} turned out to mean operations {sorted(wanted)}, but {sorted(edited)} were "
                    "edited: loops are numbered when the run is over. Edit by position, module path or a function "
                    "instead"
                )


def _name_in_history(target: EditTarget, address: str, call: int) -> str:
    """Return the name by which a patch finds the same value in another history."""
    key = target.key
    return key if target.selector.form == "role" and len(target.places) == 1 and call == 1 else f"{address}:{call}"


def _application(target: EditTarget, part: TensorPart | None, label: str) -> Callable[[Tensor], Tensor]:
    """Return the edit as a function of the whole value."""
    function = target.edit.function
    apply = (lambda x: function(x, label)) if getattr(function, "wants_key", False) else function
    if part is None:
        return apply
    whole = getattr(function, "takes_whole", False)
    return lambda x: part.edit(x, apply, whole)
