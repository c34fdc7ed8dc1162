"""Build `Op` and `ModuleRun` records from the recorder's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.function_table import lookup_call
from torcheer.capture.record.model_names import ModelNames
from torcheer.capture.record.recorder import OpRow, Recorder
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.released_values import RELEASED, read_grad_fn
from torcheer.capture.record.source_lines import is_user_code, line_of
from torcheer.capture.record.tensor_facts import grad_fn_name, meta_of
from torcheer.capture.record.tensor_trees import ABSENT, Path, argument_leaves
from torcheer.capture.special_cases import deferred_inside
from torcheer.errors import ValueUnavailable
from torcheer.records import (
    Argument,
    Edge,
    ModuleCall,
    ModuleRun,
    Op,
    RunInfo,
    Source,
    Stored,
    TensorMeta,
    on_accelerator,
)

_KINDS = {"grad": "unseen"}  # connected by edges, but autograd's engine ran it


class LiveTrace:
    """The `Trace` of a live capture: ops are built once, on first read."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.seed: int | None = None
        self.elapsed_secs = 0.0
        self.stopped = ""
        training = getattr(recorder.model, "training", None)
        self.mode = "" if training is None else "train" if training else "eval"
        self.gradient_log: Any = None
        self.settle_values: Callable[[], None] | None = None  # lets go of values that names turn out not to ask for
        self.finished = False
        self.origin: tuple[Any, int] = (None, 0)  # code and instruction that started the capture
        self._ops: list[Op] = []
        self._returning_scopes: dict[int, list[int]] = {}  # node -> module calls that returned it
        self._exits_read = 0
        self._calls: dict[int, ModuleCall | None] = {}  # scope -> its module call
        self._call_counts: dict[str, int] = {}
        self._root_calls: dict[int, int] = {}  # root scope -> which call of its module
        self._scopes_read = 0
        self._names: ModelNames | None = None
        self._stored_numbers: dict[int, int] = {}  # id of a stored tensor -> its first place among them
        self._stored_numbered = 0
        self._homes_read = 0  # number of stored tensors already named
        self._names_read = 0  # number of scope cells already searched for roots
        self._roots: dict[torch.nn.Module, None] = {} if recorder.model is None else {recorder.model: None}
        self._below: dict[int, list[Op]] | None = None
        self._readers: list[Callable[[Op], object]] = []
        self.on_follow: Callable[[], None] = lambda: None

    # -- the Trace protocol ------------------------------------------------------------------------------------------

    def ops(self) -> list[Op]:
        """Return every operation so far."""
        recorder = self.recorder
        if len(self._ops) < recorder.count:
            self._read_scopes()
            self._read_exits()
            for node in range(len(self._ops), recorder.count):
                self._ops.append(self.build(node))
        return self._ops

    def info(self) -> RunInfo:
        """Return the facts of the whole run."""
        names = self._stored_names()
        return RunInfo(
            model=names.title,
            seed=self.seed,
            elapsed_secs=self.elapsed_secs,
            modules=names.modules,
            stored=names.stored,
            notes=tuple(self.recorder.run_notes),
            stopped=self.stopped,
            mode=self.mode,
            caller=self.origin[0].co_qualname if self.origin[0] is not None else "",
        )

    def module_path(self, module: Any) -> str:
        """Return the path of a module of the model; "" if it is none."""
        return self._stored_names().path_of(module)

    def is_saved(self, index: int, output: int) -> bool:
        """Whether `value` would return a tensor."""
        if index in self.recorder.deferred:
            return deferred_inside.is_available(self.recorder, self.recorder.deferred[index])
        try:
            self.value(index, output)
        except ValueUnavailable:
            return False
        return True

    def value(self, index: int, output: int) -> Tensor:
        """Return an output of an op; raises ValueUnavailable."""
        if self.settle_values is not None:
            settle, self.settle_values = self.settle_values, None
            settle()
        return self.recorder.value(index << SLOT_BITS | output)

    def gradients(self, index: int, output: int) -> list[Any]:
        """Return the gradients of an output, one per backward call."""
        return [] if self.gradient_log is None else self.gradient_log.of(index << SLOT_BITS | output)

    def variables(self, index: int) -> dict[str, Any]:
        """Nothing: what is added to a live history is in the history itself."""
        return {}

    def stored_gradients(self, name: str) -> list[Any]:
        """Return the gradients of a parameter, one per backward call; without any, those of what was assigned to it."""
        names, log = self._stored_names(), self.gradient_log
        if log is None:
            return []
        assigned = self.recorder.assigned.items()
        keys = [-id(names.tensors[name])] if name in names.tensors else []
        keys += [ref for ref, (_, module, place) in assigned if names.full_name(module, place) == name]
        return next(filter(None, map(log.of, keys)), [])

    def backward_text(self) -> str:
        """Return nothing: torch's own backward has no steps to read."""
        return ""

    def stored_value(self, name: str) -> Any:
        """Return a parameter or buffer as it was when first read."""
        tensor = self._stored_names().tensors.get(name)
        stored = self.recorder.stored
        for place in range(self._stored_numbered, len(stored)):  # they stay alive, so their ids stay theirs
            self._stored_numbers.setdefault(id(stored[place]), place)
        self._stored_numbered = len(stored)
        number = self._stored_numbers.get(id(tensor))
        return tensor if number is None else self.recorder.value(~number)

    def head_columns(self, history: Any, attention: str, projections: dict[str, str]) -> dict[str, Any]:
        """Return the columns of each head of an attention's "q", "k", "v" and "z"; raises ValueUnavailable."""
        from torcheer.capture.head_columns import columns_of_run

        module = self._stored_names().module_at(attention)
        return columns_of_run(history, module, attention, projections)

    def below(self, index: int) -> list[Op]:
        """Return the aten operations that ran under one op, with `level="aten"`."""
        if self._below is None:
            self._below = {}
            for number, (node, function, metas, nanoseconds) in enumerate(self.recorder.aten_calls):
                call = lookup_call(function)
                op = Op(
                    number,
                    call.name,
                    "op",
                    outputs=metas,
                    function=call.where,
                    level="aten",
                    under=node,
                    elapsed_secs=nanoseconds / 1e9,
                )
                self._below.setdefault(node, []).append(op)
        return self._below.get(index, [])

    def runs(self) -> list[ModuleRun]:
        """Return the inputs and outputs of each module call, in call order."""
        self._read_scopes()
        recorder, returned = self.recorder, dict[int, list[int | None]]()
        for scope, refs in zip(recorder.exits[::2], recorder.exits[1::2], strict=True):
            returned.setdefault(scope, []).extend(refs if isinstance(refs, tuple) else (refs,))
        for scope, refs in recorder.object_outputs.items():
            returned.setdefault(scope, []).extend(refs)
        runs = []
        for scope, arguments in enumerate(recorder.call_inputs):
            kind = type(recorder.scopes[4 * scope + 1]).__name__
            call = self._calls[scope] or ModuleCall("", self._root_calls.get(scope, 1), kind)
            inputs = (((0,), arguments, None),) if isinstance(arguments, int) else arguments or ()
            outputs = (((place,), ref, None) for place, ref in enumerate(returned.get(scope, ())) if ref is not None)
            runs.append(
                ModuleRun(
                    call, *(tuple([self._argument(*argument) for argument in side]) for side in (inputs, outputs))
                )
            )
        return runs

    def _argument(self, where: Path, ref: int | None, setting: Any) -> Argument:
        if ref is None:
            return Argument(where, setting=setting)
        if ref < 0:
            return Argument(where, stored=self._stored_names().describe(self.recorder.stored[~ref], where).name)
        return Argument(where, ref >> SLOT_BITS, ref & SLOT_MASK)

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Call `reader` with every op so far, then with each new one as it runs."""
        for op in list(self.ops()):
            reader(op)
        if not self.finished:
            self._readers.append(reader)
            self.on_follow()

    def notify_readers(self) -> None:
        """Pass the newest operations to the readers."""
        notified = len(self._ops)
        for op in self.ops()[notified:]:
            for reader in self._readers:
                reader(op)

    def finish(self) -> None:
        """Discard records built during the run: they are rebuilt with the final names."""
        self.finished = True
        self._names, self._names_read = None, 0  # lazy modules have their parameters only now
        self._ops, self._returning_scopes, self._exits_read = [], {}, 0

    # -- building ----------------------------------------------------------------------------------------------------

    def build(self, node: int) -> Op:
        """Build the record of one operation from what is known so far."""
        self._read_scopes()
        recorder = self.recorder
        row = recorder.row(node)
        call = row.call
        parents, stored, settings = self._arguments(node, row)
        tensors = recorder.outputs(node)
        if recorder.saved is None:
            tensors = [
                recorder.memory.original(node << SLOT_BITS | slot, tensor) for slot, tensor in enumerate(tensors)
            ]
        returned = recorder.output_count(node)
        metas = tuple(meta_of(tensor) for tensor in tensors)
        is_measured = recorder.device_secs and row.nanoseconds and on_accelerator(metas)
        seconds = recorder.device_secs.get(node) if is_measured else None
        return Op(
            index=node,
            name=call.name,
            kind=_KINDS.get(call.name, call.name) if call.mark else "op",
            parents=parents,
            outputs=metas[:returned],
            stored=stored,
            modules=self._modules(row.scope),
            root_call=self._root_call(row.scope),
            output_of=tuple(c for c in map(self._module_call, self._returning_scopes.get(node, ())) if c is not None),
            source=self._source(recorder.callers.get(node, (row.code, row.lasti)), row.scope),
            site=_site(row.code, row.lasti),
            elapsed_secs=row.nanoseconds / 1e9 if seconds is None else seconds,
            timing="host" if seconds is None else "device",
            function=call.where,
            grad_fn=self._grad_fn(node, row),
            settings=settings,
            inplace=node in recorder.inplace_nodes,
            view=call.view,
            random=node in recorder.random_states,
            level=call.level,
            edited=recorder.edited.get(node, ""),
            note=recorder.notes.get(node, ""),
            written=metas[returned:],
            returned_at=recorder.returned_at.get(node, ()),
            given_at=recorder.given_at.get(node, ()),
        )

    def output_metas(self, node: int) -> tuple[TensorMeta, ...]:
        """Return the metadata of an operation's outputs, without building its record."""
        return tuple([meta_of(tensor) for tensor in self.recorder.outputs(node)[: self.recorder.output_count(node)]])

    def first_shape(self, node: int) -> tuple[int, ...]:
        """Return the shape of an operation's first output, () without one; predicates ask for it most."""
        recorder = self.recorder
        if recorder.output_count(node) == 0:
            return ()
        offsets = recorder.released_at(node)
        if offsets and isinstance(shape := recorder.facts[offsets[0] + 1], torch.Size):
            return tuple(shape)
        return meta_of(recorder.outputs(node)[0]).shape

    def modules_around(self, node: int) -> tuple[ModuleCall, ...]:
        """Return the module calls around an operation, without building its record."""
        self._read_scopes()
        return self._modules(self.recorder.row(node).scope)

    def _grad_fn(self, node: int, row: OpRow) -> str:
        if type(row.out) in RELEASED:
            return next((read_grad_fn(self.recorder.facts, offset) for offset in self.recorder.released_at(node)), "")
        before = self.recorder.memory.grad_fns.get(node << SLOT_BITS)  # an in-place write replaces the tensor's grad_fn
        if before is not None:
            return before
        outputs = self.recorder.outputs(node)
        return grad_fn_name(outputs[0]) if outputs else ""

    def _arguments(self, node: int, row: OpRow) -> tuple[tuple[Edge, ...], tuple[Stored, ...], tuple[Any, ...]]:
        parents: list[Edge] = []
        stored: list[Stored] = []
        settings = []
        refs = iter(row.refs)
        if row.call.mark:
            for place, ref in enumerate(dict.fromkeys(refs)):
                self._add_argument(node, ref, (place,), None, parents, stored)
            return tuple(parents), tuple(stored), ()
        for where, value in argument_leaves(row.args, row.kwargs):
            if value is ABSENT or isinstance(value, Tensor):
                ref = next(refs)
                tensor = value if isinstance(value, Tensor) else self.recorder.tensor_of(ref)
                _, tensor = self.recorder.gathered.get(id(tensor), (None, tensor))
                self._add_argument(node, ref, where, tensor, parents, stored)
            else:
                settings.append((where, value))
        return tuple(parents), tuple(stored), tuple(settings)

    def _add_argument(
        self, node: int, ref: int, where: Path, tensor: Tensor | None, parents: list[Edge], stored: list[Stored]
    ) -> None:
        """Add a tensor argument to parents, stored tensors, or both once written or assigned."""
        if ref >= 0:
            parents.append(Edge(ref >> SLOT_BITS, ref & SLOT_MASK, where))
        if ref < 0:
            tensor = self.recorder.stored[~ref]
        if tensor is not None and (ref < 0 or self._stored_names().holds(tensor)):
            stored.append(self._stored_names().describe(tensor, where))
        elif ref in self.recorder.assigned and self.recorder.assigned[ref][0] <= node:
            _, module, name = self.recorder.assigned[ref]
            meta = meta_of(self.recorder.outputs(ref >> SLOT_BITS)[ref & SLOT_MASK])
            name, kind = self._stored_names().assigned(module, name)
            stored.append(Stored(name, kind, meta.shape, meta.dtype, meta.bytes, meta.requires_grad, where))

    def _stored_names(self) -> ModelNames:
        """Return the model's names; read again only when a new root module was called."""
        scopes = self.recorder.scopes
        for position in range(self._names_read, len(scopes), 4):
            if scopes[position] < 0 and scopes[position + 1] not in self._roots:
                self._roots[scopes[position + 1]] = None
                self._names = None
        self._names_read = len(scopes)
        if self._names is None:
            self._names, self._homes_read = ModelNames(list(self._roots)), 0
        stored, homes = self.recorder.stored, self.recorder.owners
        while self._homes_read < len(stored):
            tensor = stored[self._homes_read]
            self._names.keep_name(tensor, homes.get(id(tensor)))
            self._homes_read += 1
        return self._names

    # -- modules -----------------------------------------------------------------------------------------------------

    def _read_scopes(self) -> None:
        scopes, names = self.recorder.scopes, self._stored_names()
        for scope in range(self._scopes_read, len(scopes) // 4):
            module = scopes[4 * scope + 1]
            address = names.address(module)
            count = self._call_counts[address] = self._call_counts.get(address, 0) + 1
            if scopes[4 * scope] < 0:
                self._root_calls[scope] = count
            self._calls[scope] = ModuleCall(address, count, type(module).__name__) if address else None
        self._scopes_read = len(scopes) // 4

    def _read_exits(self) -> None:
        exits = self.recorder.exits
        for position in range(self._exits_read, len(exits), 2):
            refs = exits[position + 1]
            for ref in refs if isinstance(refs, tuple) else (refs,):
                if ref is not None and ref >= 0:
                    scopes = self._returning_scopes.setdefault(ref >> SLOT_BITS, [])
                    if exits[position] not in scopes:
                        scopes.insert(0, exits[position])
        self._exits_read = len(exits)

    def _module_call(self, scope: int) -> ModuleCall | None:
        return self._calls.get(scope)

    def address_of(self, scope: int) -> str:
        """Return the module address of a scope, "" for the model itself and outside of any."""
        self._read_scopes()
        call = self._calls.get(scope)
        return call.address if call is not None else ""

    def _modules(self, scope: int) -> tuple[ModuleCall, ...]:
        chain: list[ModuleCall] = []
        while scope >= 0:
            call = self._calls[scope]
            if call is not None:
                chain.append(call)
            scope = self.recorder.scopes[4 * scope]
        return tuple(reversed(chain))

    def _root_call(self, scope: int) -> int:
        if scope < 0:
            return 0
        while self.recorder.scopes[4 * scope] >= 0:
            scope = self.recorder.scopes[4 * scope]
        return self._root_calls[scope]

    def _source(self, caller: tuple[Any, int], scope: int) -> Source | None:
        """Return the user's line: of the call itself, or of the nearest enclosing module call."""
        code, lasti = caller
        scopes = self.recorder.scopes
        while code is not None and not is_user_code(code) and scope >= 0:
            scope, _, code, lasti = scopes[4 * scope : 4 * scope + 4]
        if code is not None and not is_user_code(code):
            code, lasti = self.origin
        return Source(code.co_filename, line_of(code, lasti), code.co_qualname) if code is not None else None


def _site(code: Any, lasti: int) -> tuple[Any, ...]:
    return (code.co_filename, code.co_firstlineno, lasti) if code is not None else ()
