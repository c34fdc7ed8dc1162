"""The graph of a model file as a history: operations that have not run, so without values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

from torcheer.encoding import TYPES
from torcheer.errors import ValueUnavailable
from torcheer.foreign.program_nodes import UNKNOWN, Node, Program, ValueShape
from torcheer.history import ModelHistory
from torcheer.history.trace_protocol import Trace
from torcheer.modelfiles.file_tensor import FileTensor
from torcheer.modelfiles.model_file import ModelFile
from torcheer.records import Edge, ModuleCall, ModuleInfo, Op, RunInfo, Stored, TensorMeta


def history_of(file: ModelFile) -> ModelHistory:
    """The history of a file's program; raises `ValueUnavailable` where the file has none."""
    if file.program is None:
        raise ValueUnavailable(f"{file.path.name} holds tensors alone: {file.format} has no graph")
    return ModelHistory(_ProgramTrace(file, file.program))


class _ProgramTrace(Trace):
    """The operations of a program."""

    def __init__(self, file: ModelFile, program: Program) -> None:
        self._file = file
        self._stored = {name: _stored(tensor, program) for name, tensor in file.tensors.items()}
        self._ops = list(_Ops(program, self._stored, file))
        modules = {call.address: call for op in self._ops for call in op.modules}
        held: dict[str, dict[str, None]] = {address: {} for address in modules}
        for name in self._stored:
            held.get(name.rpartition(".")[0], {})[name] = None
        for op in self._ops:  # exporters name weights anew: those are of the module that reads them
            for entry in op.stored if op.modules else ():
                if entry.name.rpartition(".")[0] not in modules:
                    held[op.modules[-1].address][entry.name] = None
        infos = {address: ModuleInfo(address, call.type, tuple(held[address])) for address, call in modules.items()}
        self._info = RunInfo(program.name, modules=infos, stored=self._stored)

    def ops(self) -> list[Op]:
        return self._ops

    def info(self) -> RunInfo:
        return self._info

    def is_saved(self, index: int, output: int) -> bool:
        return False

    def value(self, index: int, output: int) -> Any:
        raise ValueUnavailable("a file has no values: nothing has run")

    def gradients(self, index: int, output: int) -> list[Any]:
        return []

    def stored_value(self, name: str) -> Any:
        return self._file[name].numpy()


def _stored(tensor: FileTensor, program: Program) -> Stored:
    """A weight of a file, which does not say what trains it."""
    kind, trainable = ("buffer", False) if tensor.name in program.buffers else ("parameter", None)
    return Stored(tensor.name, kind, tensor.shape, f"torch.{tensor.type}", tensor.nbytes, trainable)


def _argument(tensor: FileTensor) -> str | None:
    """The few integers that say how an operation is done, such as the shape of a Reshape; None for other tensors."""
    is_few = tensor.type == "int64" and len(tensor.shape) <= 1 and tensor.size <= _MOST_ARGUMENTS
    return str(tensor.numpy().tolist()) if is_few else None


class _Ops:
    """Makes an operation of each input, node and output; a value that nobody makes is left out."""

    def __init__(self, program: Program, stored: dict[str, Stored], tensors: Mapping[str, FileTensor]) -> None:
        self._program, self._stored = program, stored
        small = {name: _argument(tensors[name]) for name in program.buffers & tensors.keys()}
        self._arguments = {name: text for name, text in small.items() if text is not None}
        self._makers: dict[str, tuple[int, int]] = {}  # value -> index and output of its operation
        self._types = _module_types(program)
        self._last = {call: place for place, node in enumerate(program.nodes) for call in self._calls(node)}

    def __iter__(self) -> Iterator[Op]:
        index = 0
        for name in self._program.inputs:
            yield Op(index, name, "input", outputs=(self._meta(name),))
            self._makers[name] = (index, 0)
            index += 1
        for place, node in enumerate(self._program.nodes):
            yield self._op(index, place, node)
            self._makers |= {name: (index, number) for number, name in enumerate(node.outputs) if name}
            index += 1
        for name in self._program.outputs:
            yield Op(index, "output", "output", self._edges((name,)), (self._meta(name),))
            index += 1

    def _op(self, index: int, place: int, node: Node) -> Op:
        calls = tuple(self._calls(node))
        weights = [
            (number, self._program.weights[name])
            for number, name in enumerate(node.inputs)
            if name in self._program.weights
        ]
        stored = tuple(
            Stored(**{field: getattr(self._stored[name], field) for field in _FIELDS}, where=(number,))
            for number, name in weights if name in self._stored and name not in self._arguments
        )  # fmt: skip
        settings: list[tuple[tuple[int | str, ...], str]] = [((name,), value) for name, value in node.settings]
        settings += [((number,), self._arguments[name]) for number, name in weights if name in self._arguments]
        return Op(
            index, node.operation, "op", self._edges(node.inputs), tuple(map(self._meta, node.outputs)), stored,
            calls, 1, tuple(call for call in calls if self._last[call] == place), function=node.operation,
            settings=tuple(settings),
        )  # fmt: skip

    def _calls(self, node: Node) -> Iterator[ModuleCall]:
        for address, _ in node.modules:
            yield ModuleCall(address, 1, self._types[address])

    def _edges(self, names: tuple[str, ...]) -> tuple[Edge, ...]:
        return tuple(Edge(*self._makers[name], (place,)) for place, name in enumerate(names) if name in self._makers)

    def _meta(self, name: str) -> TensorMeta:
        known = self._program.shapes.get(name, ValueShape((UNKNOWN,)))
        if prod(known.shape) >= _MOST_NUMBERS:  # a file may say anything
            known = ValueShape((UNKNOWN,), known.type)
        type = known.type if known.type in TYPES else "float32"
        size = 0 if UNKNOWN in known.shape else prod(known.shape)
        return TensorMeta(known.shape, f"torch.{type}", "", size * TYPES[type].itemsize)


_MOST_NUMBERS: Final = 2**60
_MOST_ARGUMENTS: Final = 16
_FIELDS = ("name", "kind", "shape", "dtype", "bytes", "trainable")


def _module_types(program: Program) -> dict[str, str]:
    """The type of each module; where the file does not say it, the operation of a module that has one alone."""
    known: dict[str, str] = {}
    operations: dict[str, list[str]] = {}
    for node in program.nodes:
        for address, type in node.modules:
            known.setdefault(address, type)
            operations.setdefault(address, []).append(node.operation)
    alone = {address: names[0] if len(names) == 1 else "Module" for address, names in operations.items()}
    return {address: type or alone[address] for address, type in known.items()}
