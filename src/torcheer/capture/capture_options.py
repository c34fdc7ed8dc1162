"""Capture options: `layers_to_save`, `edits`, `save_gradients`, and readers that follow."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from torcheer.capture import edits as edits_module
from torcheer.capture.ambient_state import random_state
from torcheer.capture.editing.edit_targets import EditTarget, EditTargets
from torcheer.capture.editing.input_edits import argument_number, check_runs_again, replace_argument, run_again
from torcheer.capture.live_selection import KnownLater, RunningNames, RunningOp, RunningRecord, RunningView
from torcheer.capture.op_choice import LateChoice, OpChoice
from torcheer.capture.record.function_table import TorchCall
from torcheer.capture.record.op_rows import LiveTrace
from torcheer.capture.record.partial_recorder import PartialRecorder
from torcheer.capture.record.recorder import OUT, WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.source_lines import is_user_code
from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import leaves, replace_one
from torcheer.capture.torch_state import DisableTorchFunction, version_of
from torcheer.capture.values.save_policy import KeptValues, Save, StopEarly, release_others
from torcheer.capture.values.saved_gradients import GradientLog
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.history.layers.layer_names import layer_name
from torcheer.models import named_parts
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
        self.kept: KeptValues | None = None  # None: rows keep everything as it ran
        self.log: GradientLog | None = None
        self.selectors: list[Selector] = []
        self.edits = EditTargets({})
        self._addresses: dict[int, str] = {}  # id of a module -> its path, where calls are seen before they run
        self._names = RunningNames(recorder)  # of all operations, for edits
        self._choice = OpChoice((), trace, history)
        self._matched_keys: set[Any] = set()  # keys of edits, and of what was saved as a module's output
        self._module_nodes: set[int] = set()  # nodes whose results were saved as a module's output
        self._edited_nodes: dict[Any, set[int]] = {}  # key -> nodes it edited
        # id of a module whose result a selector or an edit may want -> its path, and those of `layers_to_save`, each
        # with whether it means every call
        self._modules: dict[int, tuple[str, list[tuple[Selector, bool]]]] = {}
        self._module_calls: dict[str, int] = {}
        self._stored_logged = 0
        self._uninitialized: list[Tensor] = []  # parameters of lazy modules, which have no gradient to log yet
        self._gathered_logged = 0
        recorder.on_op = self._on_op

    def read(self, save: Save, save_gradients: bool, edits: Mapping[Any, Any] | None) -> None:
        """Parse and check the options, before anything runs."""
        recorder = self.recorder
        modules: dict[str, torch.nn.Module] = {}
        if recorder.model is not None and (edits or not isinstance(save.layers, str)):
            modules = named_parts(recorder.model)
        self.save = save
        self.selectors = parse_all(save.layers, modules, "layers_to_save")
        self.edits = EditTargets(modules)
        for key, several in edits_module.check(edits or {}).items():
            for edit in several:
                self.edits.add(parse(key, modules, "edits"), edit)
        recorder.has_edits = bool(self.edits.all)
        self.edits.saved = [place for selector in self.selectors for place in selector.places]
        self._addresses = {id(module): path for path, module in modules.items()}
        if self.edits.need_entries:
            recorder.on_entry = self._on_entry
        self._choice = OpChoice(self.selectors, self.trace, self.history, logs_gradients=save_gradients)
        if save_gradients:
            self.log = self.trace.gradient_log = recorder.gradient_log = GradientLog()
        self._find_modules(modules)
        if isinstance(recorder, PartialRecorder):
            self.kept = KeptValues(save, recorder)
            if self.edits.all:
                recorder.release_late()
            recorder.on_row = None if self._choice.is_empty else self._on_row
            if self._choice.window:
                self.kept.hold_recent(self._choice.window)
            recorder.wants_inside = self._wants_inside

    def see_whole_rows(self) -> None:
        """Handle every row with its tensors, for readers that follow."""
        if isinstance(self.recorder, PartialRecorder):
            self.recorder.release_late()

    def _wants_inside(self, module: torch.nn.Module, calls: frozenset[TorchCall]) -> bool:
        """Whether a value of an operation or a module inside a fused kernel may be wanted, or each row is."""
        if self.trace._readers or self._choice.window or not all(map(self._choice.ignores, calls)):
            return True
        return any(id(part) in self._modules for part in module.modules() if part is not module)

    def _find_modules(self, modules: Mapping[str, torch.nn.Module]) -> None:
        """Find the modules whose results a selector or an edit may want."""
        for selector in self.selectors:
            means_every_call = selector.for_modules and selector.means_every_call
            for path in selector.modules_among(modules) if selector.for_modules else ():
                self._modules.setdefault(id(modules[path]), (path, []))[1].append((selector, means_every_call))
        for selector in (target.selector for target in self.edits.all):
            for path in selector.modules_among(modules) if selector.for_modules else ():
                self._modules.setdefault(id(modules[path]), (path, []))
        for place in (*self.edits.saved, *(place for target in self.edits.all for place in target.places)):
            self._modules.setdefault(id(modules[place.path]), (place.path, []))
        if self._modules:
            self.recorder.on_module = self._on_module

    # -- as the model runs -------------------------------------------------------------------------------------------

    def _on_row(self, node: int, call: TorchCall, out: Any) -> None:
        """Handle a row that holds no tensors: save its result if it is wanted."""
        choice = self._choice
        if choice.wants(node, call):
            self._keep(node, [out] if type(out) is Tensor else leaves(out), is_new=True)
        elif choice.ignores(call, node):
            self.recorder.ignored_calls.add(call)
        elif self.log is not None and choice.window:
            self._log_gradients(self.log, node, leaves(out))

    def _on_op(self, node: int, call: TorchCall, out: Any) -> Any:
        """Handle a row with its tensors; without requests for it, only let them go."""
        if self.edits.all or self.trace._readers:
            with self.recorder.paused():  # the work of edits and readers is not part of the model
                return self._handle_op(node, call, out)
        return self._handle_op(node, call, out)

    def _handle_op(self, node: int, call: TorchCall, out: Any) -> Any:
        if self.edits.all:
            running = self._names.name(node, layer_name(call.name))
            node, out = self._edit_inputs(node, call, out, running)
            for target in self.edits.all:
                if target.edit.at == "input" and not target.inside:
                    continue
                if target.inside and target.is_attention(call.name) and self._is_inside(target.inside):
                    out = self._apply_edit(out, target, running.label, None, call.name)
                elif target.selector.for_ops and self._edits(target.selector, running, call):
                    out = self._apply_edit(out, target, running.label, None, call.name)
        choice = self._choice
        if not choice.is_empty and choice.wants(node, call):
            self._keep(node, self.recorder.outputs(node))
        elif choice.window:
            self._hold(node, self.recorder.outputs(node))
        if isinstance(self.recorder, PartialRecorder):
            self.recorder.release(node)
        if self.trace._readers:
            self.trace.notify_readers()
        return out

    def _edit_inputs(self, node: int, call: TorchCall, out: Any, running: RunningOp) -> tuple[int, Any]:
        """Run an operation again, if an edit is for what it receives; return its row and result."""
        targets = [
            target
            for target in self.edits.all
            if target.edit.at == "input" and not target.inside and target.selector.for_ops
            if not call.mark or (target.selector.form in ("label", "position") and call.name != "edit")
            if self._edits(target.selector, running, call)
        ]
        if not targets:
            return node, out
        for target in targets:
            check_runs_again(self.recorder, node, target.key, running.label)

        def edit(received: Any) -> Any:
            for target in targets:
                received = self._edit_argument(received, target, running.label, call.name)
            return received

        node, out = run_again(self.recorder, node, edit)
        self._names.place(running, node)
        for target in targets:
            self._edited_nodes.setdefault(target.key, set()).add(node)
        return node, out

    def _edit_argument(self, received: Any, target: EditTarget, label: str, name: str) -> Any:
        number = argument_number(self.recorder, received, target.edit.output, target.key, label)
        tensor = leaves(received)[number]
        part = self.edits.part(target, None, tensor, name)
        if part is not None and part.is_empty:
            return received
        apply, ref = target.application(part, label), self.recorder.ref_of(tensor)
        new = self._replace_value(ref, tensor, apply, target.edit.text, as_new_row=True)
        return replace_argument(received, number, new)

    def _keep(self, node: int, tensors: list[Tensor], is_new: bool = False) -> None:
        """Save the tensors of a row, and log their gradients."""
        kept = self.kept
        if kept is not None:
            for ref, tensor in enumerate(tensors, node << SLOT_BITS):
                if not (is_new and kept.keep_new(ref, tensor)):
                    with self.recorder.paused():  # a conversion is not part of the model
                        kept.keep(ref, tensor)
        if self.log is not None:
            self._log_gradients(self.log, node, tensors)
        if kept is not None:
            self._stop_if_done()

    def _hold(self, node: int, tensors: list[Tensor]) -> None:
        """Hold the tensors of a row that a position from the end may mean; gradients are logged in any case."""
        if self.recorder.recent is not None:
            self.recorder.recent.append((node, tensors))
        if self.log is not None:
            self._log_gradients(self.log, node, tensors)

    def _log_gradients(self, log: GradientLog, node: int, tensors: list[Tensor]) -> None:
        for ref, tensor in enumerate(tensors, node << SLOT_BITS):
            log.hook(tensor, ref)
        if len(self.recorder.gathered) > self._gathered_logged:
            for (
                whole,
                shard,
            ) in self.recorder.gathered.values():  # before the shard itself: autograd's leaf is the whole
                log.hook(whole, -id(shard))
            self._gathered_logged = len(self.recorder.gathered)
        new = self._uninitialized + self.recorder.stored[self._stored_logged :]
        self._uninitialized = [tensor for tensor in new if is_lazy(tensor)]
        for tensor in new:
            log.hook(tensor, -id(tensor))
        self._stored_logged = len(self.recorder.stored)

    def _edits(self, selector: Selector, running: RunningOp, call: TorchCall) -> bool:
        if selector.test is None:
            matches = running.likely_matches(selector)
        else:
            try:
                record: Any = RunningRecord(self.trace, running.index, call.name)
                matches = bool(selector.test(RunningView(self.history, record)))
            except KnownLater as later:
                raise BadArgument(
                    f"edits: a predicate asked for layer.{later}, which is known only when the run is over. "
                    "Select by label, position, module path or what a layer knows at once, such as its name and shape"
                ) from None
        if matches:
            self._matched_keys.add(selector.key)
        return matches

    def _on_module(self, scope: int, module: torch.nn.Module, out: Any) -> Any:
        if id(module) not in self._modules:
            return out
        with self.recorder.paused():  # or the recorder would be asked for each fact that is read of the tensor
            return self._handle_module(scope, module, out)

    def _handle_module(self, scope: int, module: torch.nn.Module, out: Any) -> Any:
        path, selectors = self._modules[id(module)]
        call = self._module_calls[path] = self._module_calls.get(path, 0) + 1
        kind = type(module).__name__
        for target in self.edits.all:
            if (place := target.place(path, call, kind, "output")) is not None:
                out = self._apply_edit(out, target, target.name_in_history(path, call), place, kind, scope)
        for selector, is_every_call in selectors:
            if is_every_call or selector.matches_call(path, call, kind):
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
                label = target.name_in_history(address, call)
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
        if self.log is None and type(out) is Tensor and self.kept is not None:
            recorder, key = self.recorder, id(out)
            ref = recorder.find_ref(key)
            if ref is not None and ref >= 0 and version_of(out) == recorder.versions.get(key, 0):
                if self.kept.keep_new(ref, out):
                    self._module_nodes.add(ref >> SLOT_BITS)
                    self._stop_if_done()
                    return
        for tensor in leaves(out):
            ref = self.recorder.ref_of(tensor)
            self._module_nodes.add(ref >> SLOT_BITS)
            if self.kept is not None and ref >= 0:
                self.kept.keep(ref, tensor)
            if self.log is not None and ref >= 0:
                self.log.hook(tensor, ref)
        self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self.save.stop_early:
            matched = self._matched_keys | self._choice.seen
            if all(selector.key in matched for selector in self.selectors):
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
        apply = target.application(part, label)
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
                return self._set_edited(ref, old)
            recorder.refs_by_id.pop(id(old), None)
        recorder.rows[node * WIDTH + OUT] = replace_one(row.out, old, new)
        return self._set_edited(ref, new)

    def _set_edited(self, ref: int, edited: Tensor) -> Tensor:
        self.recorder.set_ref(edited, ref)
        if self.kept is not None:
            self.kept.keep_edited(ref, edited)
        return edited

    def _ran_in(self, node: int, scope: int) -> bool:
        inner = self.recorder.row(node).scope
        while inner > scope:
            inner = self.recorder.scopes[4 * inner]
        return inner == scope

    # -- at the end --------------------------------------------------------------------------------------------------

    def finish_recent(self) -> None:
        """Keep the values that positions from the end mean, now that the end is known."""
        if self.kept is not None:
            self.kept.finish(set(self._choice.from_end))

    def finish(self) -> None:
        """Release values that no selector wanted after all; raise for keys that matched nothing."""
        choice, trace = self._choice, self.trace
        self.finish_recent()
        if self.kept is not None:
            choice.finish(self.recorder.count)
        if trace.stopped:
            return
        late = choice.late(self._matched_keys, self._module_nodes) if self.kept is not None else None
        if late is not None:
            settle = partial(_settle, weakref.ref(self.history), weakref.ref(self.recorder), late)
            if late.can_wait:
                trace.settle_values = settle
            else:
                settle()
        matched = self._matched_keys | (choice.matched if self.kept is not None else choice.seen)
        for selector in (*self.selectors, *(target.selector for target in self.edits.all)):
            if selector.key not in matched and selector.form not in ("all", "none"):
                self._raise_unmatched(selector)
        self._check_edits()
        self.edits.check_reached()

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
        for target in self.edits.all:
            selector = target.selector
            if selector.form not in ("label", "pattern"):
                continue
            wanted, edited = self._final_nodes(target), self._edited_nodes.get(selector.key, set())
            if wanted != edited:
                raise BadArgument(
                    f"{selector.key!r} turned out to mean operations {sorted(wanted)}, but {sorted(edited)} were "
                    "edited: loops are numbered when the run is over. Edit by position, module path or a function "
                    "instead"
                )

    def _final_nodes(self, target: EditTarget) -> set[int]:
        key, selector = target.key, target.selector
        if target.edit.at == "input" and selector.form == "label" and selector.index >= 0:
            key = f"{selector.name}_{selector.number}" + (f":{selector.call}" if selector.call else "")
        try:  # an edit of an input is a row of its own, and moves the others
            return set(self.history.indices(key))
        except UnknownLayer:
            return set()


def _settle(history: weakref.ref[Any], recorder: weakref.ref[Recorder], late: LateChoice) -> None:
    """Let go of values whose layers turned out to have other names; by weak references, so that nothing is a cycle."""
    if history() is not None and (alive := recorder()) is not None:
        release_others(alive, late.settle(history()))
