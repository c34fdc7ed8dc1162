"""Views of modules, parameters and buffers: what each holds and what ran in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torcheer.errors import UnknownLayer
from torcheer.history.call_values import Arguments, module_run
from torcheer.history.lookup import lookup, unknown_layer_error
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.records import Stored
from torcheer.terminal import human_bytes, human_flops, plural, unknown_attribute

if TYPE_CHECKING:
    from torch import Tensor

    from torcheer.history.model_history import ModelHistory


class ModuleView:
    """One module: its type, its parameters, the operations that ran inside it."""

    __slots__ = ("address", "history")

    def __init__(self, history: ModelHistory, address: str) -> None:
        self.history = history
        self.address = address  # "" for the model itself

    if not TYPE_CHECKING:  # to type checkers any other name is a typing error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in ModuleView.__slots__:  # read by `copy` before they are set
                raise AttributeError(name)
            raise unknown_attribute(self, name)

    @property
    def type(self) -> str:
        """Its class, "Conv2d"."""
        return self.history.facts.module_types[self.address] if self.address else self.history.facts.info.model

    @property
    def ops(self) -> OpList:
        """Every operation that ran inside it."""
        return self.history.pick(self._indices)

    @property
    def _indices(self) -> list[int]:
        return self.history.facts.module_ops.get(self.address, [])

    @property
    def submodules(self) -> list[ModuleView]:
        """The modules directly in it."""
        return [ModuleView(self.history, address) for address in self.history.facts.submodules.get(self.address, ())]

    @property
    def output(self) -> OpView | LayerView:
        """The operation whose result it returned; a layer view if it was called several times."""
        match = lookup(self.history, self.address or -1)
        assert not isinstance(match, OpList)
        return match

    @property
    def inputs(self) -> Arguments:
        """The arguments of its call, if it was called once."""
        return self.inputs_of(None)

    @property
    def outputs(self) -> Arguments:
        """Every tensor it returned, also in plain objects, if it was called once."""
        return self.outputs_of(None)

    def inputs_of(self, call: int | None) -> Arguments:
        """Return the arguments of one of its calls, counted from 1."""
        return Arguments(self.history, module_run(self.history, self.address, call).inputs)

    def outputs_of(self, call: int | None) -> Arguments:
        """Return every tensor that one of its calls returned, counted from 1."""
        return Arguments(self.history, module_run(self.history, self.address, call).outputs)

    @property
    def calls(self) -> int:
        """Number of its calls in which an operation ran."""
        return self.history.facts.module_calls[self.address] if self.address else 1

    @property
    def parameters(self) -> dict[str, StoredView]:
        """Its parameters at any depth, including those shared with other modules."""
        return {record.name: StoredView(self.history, record) for record in self._parameter_records}

    @property
    def _parameter_records(self) -> list[Stored]:
        facts = self.history.facts
        return [facts.stored[name] for name in facts.module_parameters.get(self.address, [])]

    @property
    def parameter_count(self) -> int:
        """Total number of elements of its parameters."""
        return sum(record.count for record in self._parameter_records)

    @property
    def trainable_count(self) -> int | None:
        """Number of elements of its trainable parameters; None where that is not known, as in a file."""
        records = self._parameter_records
        if any(record.trainable is None for record in records):
            return None
        return sum(record.count for record in records if record.trainable)

    @property
    def flops(self) -> int:
        """Floating point operations inside it, as far as known; see `flops_unknown`."""
        flops = self.history.facts.flops
        return sum(flops[index] or 0 for index in self._indices)

    @property
    def flops_unknown(self) -> int:
        """Number of operations inside it without a FLOP formula."""
        flops = self.history.facts.flops
        return sum(flops[index] is None for index in self._indices)

    @property
    def bytes(self) -> int:
        """Total size of the outputs of its operations."""
        ops = self.history.facts.ops
        return sum(meta.bytes for index in self._indices for meta in ops[index].outputs)

    @property
    def elapsed_secs(self) -> float:
        """Total time of its operations; on an accelerator of their launches, unless `timing="device"` measured them."""
        ops = self.history.facts.ops
        return sum(ops[index].elapsed_secs for index in self._indices)

    def __repr__(self) -> str:
        inner = [view.address for view in self.submodules]
        flops = human_flops(self.flops, self.flops_unknown)
        seconds = f"{self.elapsed_secs:.3E}s"
        if self.history.facts.time_name(self._indices) == "launch time":
            seconds += " to launch"
        lines = [
            f"Module {self.address or 'of the whole model'}: {self.type}, called {plural(self.calls, 'time')}",
            f"\tParams: {self.parameter_count} in {plural(len(self.parameters), 'tensor')}",
            f"\tOperations: {len(self._indices)} ({flops} FLOPs, {human_bytes(self.bytes)}, {seconds})",
            *([f"\tSubmodules: {', '.join(inner)}"] if inner else []),
        ]
        return "\n".join(lines)


class Modules(Mapping[str, ModuleView]):
    """Every module by its address; "" is the model itself."""

    def __init__(self, history: ModelHistory) -> None:
        self._history = history

    def __getitem__(self, address: str) -> ModuleView:
        if address and address not in self._history.facts.module_types:
            error = unknown_layer_error(self._history, address)
            raise UnknownLayer(f"no module at {address!r}: {error}")
        return ModuleView(self._history, address)

    def __iter__(self) -> Iterator[str]:
        return iter(self._history.facts.module_types)

    def __len__(self) -> int:
        return len(self._history.facts.module_types)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        return f"{plural(len(self), 'module')}: {', '.join(self)}"


class StoredView:
    """A parameter or buffer, the operations that read it and its gradients."""

    __slots__ = ("history", "record")

    # of its record, through `__getattr__`
    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    trainable: bool
    count: int

    def __init__(self, history: ModelHistory, record: Stored) -> None:
        self.history = history
        self.record = record

    if not TYPE_CHECKING:  # to type checkers any other name is a typing error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in StoredView.__slots__:  # read by `copy` before they are set
                raise AttributeError(name)
            try:
                return getattr(self.record, name)
            except AttributeError:
                raise unknown_attribute(self, name) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *StoredView.__annotations__})

    @property
    def tensor_contents(self) -> Tensor | Any:
        """Its value when the pass first read it, even if the pass wrote to it later."""
        return self.history.trace.stored_value(self.record.name)

    @property
    def gradients(self) -> list[Any]:
        """One gradient per backward call."""
        return self.history.trace.stored_gradients(self.record.name)

    @property
    def grad_contents(self) -> Tensor | Any:
        """The gradient of the last backward call; None if none reached it."""
        return self.gradients[-1] if self.gradients else None

    @property
    def used_by(self) -> OpList:
        """The operations that read it."""
        ops = self.history.facts.ops
        return self.history.pick(
            index for index, op in enumerate(ops) if any(stored.name == self.record.name for stored in op.stored)
        )

    def __repr__(self) -> str:
        return f"{self.record.kind} {self.record.name} {self.record.shape} {self.record.dtype}"
