"""From the recorder's rows to the records people read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.function_table import learn
from torcheer.capture.record.recorder import Recorder, Row
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.source_lines import is_users, line_of
from torcheer.capture.record.tensor_facts import grad_fn_name, meta_of
from torcheer.capture.record.tensor_trees import Path, argument_leaves
from torcheer.errors import ValueUnavailable
from torcheer.records import Argument, Edge, ModuleCall, ModuleInfo, ModuleRun, Op, RunInfo, Source, Stored

_KINDS = {"grad": "unseen"}  # it is connected, and nobody saw it run


class LiveTrace:
    """A capture as a history reads it: ops are built when asked for, and once."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.seed: int | None = None
        self.elapsed_secs = 0.0
        self.stopped = ""
        training = getattr(recorder.model, "training", None)
        self.mode = "" if training is None else "train" if training else "eval"
        self.gradient_log: Any = None
        self.finished = False
        self.origin: tuple[Any, int] = (None, 0)  # the code that asked for the capture
        self._ops: list[Op] = []
        self._exits: dict[int, list[int]] = {}  # node -> scopes that returned it
        self._exits_read = 0
        self._calls: dict[int, ModuleCall | None] = {}  # scope -> its module call
        self._call_counts: dict[str, int] = {}
        self._root_calls: dict[int, int] = {}  # root scope -> which call of its module
        self._scopes_read = 0
        self._names: _Names | None = None
        self._homes_read = 0  # stored tensors that have their names
        self._names_read = 0  # cells of the scopes that were looked at for it
        self._roots: dict[torch.nn.Module, None] = {} if recorder.model is None else {recorder.model: None}
        self._below: dict[int, list[Op]] | None = None
        self._readers: list[Callable[[Op], object]] = []
        self.on_follow: Callable[[], None] = lambda: None

    # -- what a history asks -----------------------------------------------------------------------------------------

    def ops(self) -> list[Op]:
        """Every operation so far."""
        recorder = self.recorder
        if len(self._ops) < recorder.count:
            self._read_scopes()
            self._read_exits()
            for node in range(len(self._ops), recorder.count):
                self._ops.append(self.build(node))
        return self._ops

    def info(self) -> RunInfo:
        """The run's own facts."""
        names = self._stored_names()
        return RunInfo(
            model=names.title,
            seed=self.seed,
            elapsed_secs=self.elapsed_secs,
            modules=names.modules,
            stored=names.stored,
            notes=tuple(self.recorder.remarks),
            stopped=self.stopped,
            mode=self.mode,
        )

    def is_saved(self, index: int, output: int) -> bool:
        """Whether `value` would answer."""
        try:
            self.value(index, output)
        except ValueUnavailable:
            return False
        return True

    def value(self, index: int, output: int) -> Tensor:
        """The tensor an op returned."""
        return self.recorder.value(index << SLOT_BITS | output)

    def gradients(self, index: int, output: int) -> list[Any]:
        """The gradients that reached it, one per backward call."""
        return [] if self.gradient_log is None else self.gradient_log.of(index << SLOT_BITS | output)

    def stored_gradients(self, name: str) -> list[Any]:
        """The gradients of one parameter, one per backward call."""
        tensor = self._stored_names().tensors.get(name)
        return [] if self.gradient_log is None or tensor is None else self.gradient_log.of(-id(tensor))

    def stored_value(self, name: str) -> Any:
        """A parameter or buffer as it was when it was first read."""
        tensor = self._stored_names().tensors.get(name)
        for number, held in enumerate(self.recorder.stored):
            if held is tensor:
                return self.recorder.value(~number)
        return tensor

    def below(self, index: int) -> list[Op]:
        """The aten operations that ran under one op, where `level="aten"` asked for them."""
        if self._below is None:
            self._below = {}
            for number, (node, function, metas, nanoseconds) in enumerate(self.recorder.below):
                call = learn(function)
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
        """What each module call received and returned, in the order of the calls."""
        self._read_scopes()
        recorder, returned = self.recorder, dict[int, list[int | None]]()
        for scope, refs in zip(recorder.exits[::2], recorder.exits[1::2], strict=True):
            returned.setdefault(scope, []).extend(refs if isinstance(refs, tuple) else (refs,))
        for scope, refs in recorder.held.items():
            returned.setdefault(scope, []).extend(refs)
        found = []
        for scope, given in enumerate(recorder.given):
            kind = type(recorder.scopes[4 * scope + 1]).__name__
            call = self._calls[scope] or ModuleCall("", self._root_calls.get(scope, 1), kind)
            inputs = (((0,), given, None),) if isinstance(given, int) else given or ()
            outputs = (((place,), ref, None) for place, ref in enumerate(returned.get(scope, ())) if ref is not None)
            found.append(
                ModuleRun(call, *(tuple([self._argument(*one) for one in side]) for side in (inputs, outputs)))
            )
        return found

    def _argument(self, where: Path, ref: int | None, setting: Any) -> Argument:
        if ref is None:
            return Argument(where, setting=setting)
        if ref < 0:
            return Argument(where, stored=self._stored_names().describe(self.recorder.stored[~ref], where).name)
        return Argument(where, ref >> SLOT_BITS, ref & SLOT_MASK)

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Hand every op so far to `reader`, then each new one as it runs."""
        for op in list(self.ops()):
            reader(op)
        if not self.finished:
            self._readers.append(reader)
            self.on_follow()

    def tell(self) -> None:
        """Hand the newest operations to those who follow."""
        told = len(self._ops)
        for op in self.ops()[told:]:
            for reader in self._readers:
                reader(op)

    def finish(self) -> None:
        """The run is over: what was built on the way is built again with what is known now."""
        self.finished = True
        self._names, self._names_read = None, 0  # lazy modules have their parameters only now
        self._ops, self._exits, self._exits_read = [], {}, 0

    # -- building ----------------------------------------------------------------------------------------------------

    def build(self, node: int) -> Op:
        """One operation's record, as far as it is known now."""
        self._read_scopes()
        recorder = self.recorder
        row = recorder.row(node)
        call = row.call
        parents, stored, settings = self._arguments(node, row)
        tensors = recorder.outputs(node)
        if recorder.saved is None:
            tensors = [recorder.memory.as_it_was(node << SLOT_BITS | slot, held) for slot, held in enumerate(tensors)]
        returned = recorder.returned(node)
        return Op(
            index=node,
            name=call.name,
            kind=_KINDS.get(call.name, call.name) if call.mark else "op",
            parents=parents,
            outputs=tuple(meta_of(tensor) for tensor in tensors[:returned]),
            stored=stored,
            modules=self._modules(row.scope),
            root_call=self._root_call(row.scope),
            output_of=tuple(c for c in map(self._module_call, self._exits.get(node, ())) if c is not None),
            source=self._source(recorder.callers.get(node, (row.code, row.lasti)), row.scope),
            site=_site(row.code, row.lasti),
            elapsed_secs=row.nanoseconds / 1e9,
            function=call.where,
            grad_fn=self._grad_fn(node, row),
            settings=settings,
            inplace=node in recorder.wrote,
            view=call.view,
            random=node in recorder.random_states,
            level=call.level,
            edited=recorder.edited.get(node, ""),
            note=recorder.notes.get(node, ""),
            written=tuple(meta_of(tensor) for tensor in tensors[returned:]),
        )

    def _grad_fn(self, node: int, row: Row) -> str:
        if hasattr(row.out, "metas"):  # let go of by `saving`
            return str(row.out.grad_fn)
        before = self.recorder.memory.grad_fns.get(node << SLOT_BITS)  # a write gives a tensor another one
        if before is not None:
            return before
        outputs = self.recorder.outputs(node)
        return grad_fn_name(outputs[0]) if outputs else ""

    def _arguments(self, node: int, row: Row) -> tuple[tuple[Edge, ...], tuple[Stored, ...], tuple[Any, ...]]:
        parents: list[Edge] = []
        stored: list[Stored] = []
        settings = []
        refs = iter(row.refs)
        if row.call.mark:
            for place, ref in enumerate(dict.fromkeys(refs)):
                self._enters(node, ref, (place,), None, parents, stored)
            return tuple(parents), tuple(stored), ()
        if hasattr(row.args, "settings"):  # let go of by `saving`
            for (where, parameter), ref in zip(row.args.tensors, refs, strict=True):
                self._enters(node, ref, where, parameter, parents, stored)
            return tuple(parents), tuple(stored), row.args.settings
        for where, value in argument_leaves(row.args, row.kwargs):
            if isinstance(value, Tensor):
                self._enters(node, next(refs), where, value, parents, stored)
            else:
                settings.append((where, value))
        return tuple(parents), tuple(stored), tuple(settings)

    def _enters(
        self, node: int, ref: int, where: Path, tensor: Tensor | None, parents: list[Edge], stored: list[Stored]
    ) -> None:
        """One tensor argument: made by an operation, held by the model, or both once it was written or assigned."""
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

    def _stored_names(self) -> _Names:
        """The model's names; read again only when a module that nobody had met is called as a root."""
        scopes = self.recorder.scopes
        for position in range(self._names_read, len(scopes), 4):
            if scopes[position] < 0 and scopes[position + 1] not in self._roots:
                self._roots[scopes[position + 1]] = None
                self._names = None
        self._names_read = len(scopes)
        if self._names is None:
            self._names, self._homes_read = _Names(list(self._roots)), 0
        stored, homes = self.recorder.stored, self.recorder.homes
        while self._homes_read < len(stored):
            tensor = stored[self._homes_read]
            self._names.settle(tensor, homes.get(id(tensor)))
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
                    scopes = self._exits.setdefault(ref >> SLOT_BITS, [])
                    if exits[position] not in scopes:
                        scopes.insert(0, exits[position])
        self._exits_read = len(exits)

    def _module_call(self, scope: int) -> ModuleCall | None:
        return self._calls.get(scope)

    def address_of(self, scope: int) -> str:
        """The module whose call a scope is, "" for the model itself and outside of any."""
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
        """The user's line: that of the call itself, or of the module call around it."""
        code, lasti = caller
        scopes = self.recorder.scopes
        while code is not None and not is_users(code) and scope >= 0:
            scope, _, code, lasti = scopes[4 * scope : 4 * scope + 4]
        if code is not None and not is_users(code):
            code, lasti = self.origin
        return Source(code.co_filename, line_of(code, lasti), code.co_qualname) if code is not None else None


def plain_address(address: str) -> str:
    """A module's path without the wrapper that torch.compile puts around a model."""
    return ".".join(part for part in address.split(".") if part != "_orig_mod")


class _Names:
    """What the model calls its modules, parameters and buffers."""

    def __init__(self, roots: list[torch.nn.Module]) -> None:
        self.title = type(getattr(roots[0], "_orig_mod", roots[0])).__name__ if roots else "recording"
        self.modules: dict[str, ModuleInfo] = {}
        self.stored: dict[str, Stored] = {}
        self.tensors: dict[str, Tensor] = {}
        self._addresses: dict[int, str] = {}
        self._tensor_names: dict[int, str] = {}
        self._strangers: dict[int, int] = {}
        self._settled: set[str] = set()
        self._parameters: set[str] = set()  # their names
        for number, root in enumerate(roots):
            prefix = "" if number == 0 else f"{type(root).__name__}_{number}"
            if id(root) not in self._addresses:
                self._read(root, prefix)

    def _read(self, root: torch.nn.Module, prefix: str) -> None:
        for address, module in root.named_modules(prefix=prefix):
            inner = plain_address(address)
            if id(module) in self._addresses:
                continue
            self._addresses[id(module)] = inner
            own = []
            for kind, group in (("parameter", module._parameters), ("buffer", module._buffers)):
                for name, tensor in group.items():
                    if tensor is not None:
                        full = f"{inner}.{name}" if inner else name
                        if kind == "parameter":
                            self._parameters.add(full)
                        if id(tensor) not in self._tensor_names:
                            self._tensor_names[id(tensor)] = full
                            self.tensors[full] = tensor
                            self.stored[full] = _stored(tensor, full, kind, ())
                        own.append(self._tensor_names[id(tensor)])
            if inner:
                self.modules[inner] = ModuleInfo(inner, type(module).__name__, tuple(own))

    def address(self, module: torch.nn.Module) -> str:
        """Its dotted name, or its type for a module that hangs nowhere."""
        return self._addresses.get(id(module), type(module).__name__)

    def full_name(self, module: torch.nn.Module, name: str) -> str:
        """What the model calls a tensor of one of its modules."""
        return plain_address(".".join(filter(None, (self._addresses.get(id(module), ""), name))))

    def assigned(self, module: torch.nn.Module, name: str) -> tuple[str, str]:
        """The name and kind of what a value became when it was assigned."""
        full = self.full_name(module, name)
        return full, "parameter" if full in self._parameters else "buffer"

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter or buffer of the model."""
        return self.tensors.get(self._tensor_names.get(id(tensor), "")) is tensor

    def settle(self, tensor: Tensor, home: tuple[torch.nn.Module, str] | None) -> None:
        """A tensor was read from the model: it has the name it had then, whatever took its place since."""
        if home is None or self.holds(tensor):
            return
        name = self.full_name(*home)
        self._tensor_names[id(tensor)] = name
        if name not in self._settled:  # the first that was read stands for all
            self._settled.add(name)
            self._tensor_names.pop(id(self.tensors.get(name)), None)  # a value that was computed, and then assigned
            self.tensors[name] = tensor
            self.stored[name] = _stored(tensor, name, self._kind(tensor, name), ())

    def describe(self, tensor: Tensor, where: Path) -> Stored:
        """A parameter or buffer as one op used it."""
        name = self._tensor_names.get(id(tensor), "")
        if not name:  # a parameter that no module of the model holds
            name = f"?{self._strangers.setdefault(id(tensor), len(self._strangers) + 1)}"
        return _stored(tensor, name, self._kind(tensor, name), where)

    def _kind(self, tensor: Tensor, name: str) -> str:
        """What a tensor of the model is; one that stands in for a parameter counts as one."""
        return "parameter" if isinstance(tensor, torch.nn.Parameter) or name in self._parameters else "buffer"


def _stored(tensor: Tensor, name: str, kind: str, where: Path) -> Stored:
    meta = meta_of(tensor)
    return Stored(name, kind, meta.shape, meta.dtype, meta.bytes, tensor.requires_grad, where)


def _site(code: Any, lasti: int) -> tuple[Any, ...]:
    return (code.co_filename, code.co_firstlineno, lasti) if code is not None else ()
