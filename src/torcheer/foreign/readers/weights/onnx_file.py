"""Reads ONNX files: the graph and its weights, from the protobuf itself; the onnx package would copy all of it.

External data are in files beside the model, and nowhere else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.errors import ArchiveDamaged
from torcheer.foreign.program_nodes import UNKNOWN, Node, Program, ValueShape
from torcheer.foreign.readers.protobuf import Messages, is_list_of, real, signed, text
from torcheer.foreign.readers.reading import BLOB, Reading, place_of
from torcheer.terminal import human_shape, short_repr
from torcheer.vocabulary.dtypes import DTYPES, codes

_TYPES: Final = {code: row.name for code, row in codes("onnx").items()}
_LISTS: Final = {4: ("float32", "complex64"), 10: ("float64", "complex128")}  # fields of numbers as in memory
_VARINTS: Final = (5, 7, 11)  # those of whole numbers
_STATISTICS: Final = {"BatchNormalization": slice(3, 5)}  # inputs that training updates without gradients
_MOST_AXES: Final = 32
_EMPTY: Final = memoryview(b"")


def read(reading: Reading) -> dict[str, Any]:
    """Read an ONNX model."""
    number = reading.file(reading.name)
    return _Model(reading, number).read()


class _Model:
    """One model: its messages, and where they lie in the file."""

    def __init__(self, reading: Reading, number: int) -> None:
        self._reading, self._number, self._data = reading, number, reading.data(number)
        self._messages = Messages(reading.budget, reading.name)
        self._fields = self._messages.fields

    def read(self) -> dict[str, Any]:
        """All of it."""
        graph, metadata = _EMPTY, dict[str, str]()
        for number, value in self._fields(self._data):
            if number == 7 and isinstance(value, memoryview):
                graph = value
            elif number in (2, 3):
                metadata[{2: "producer", 3: "producer version"}[number]] = text(value, 200)
            elif number == 8:
                facts = self._messages.last(value)
                metadata[f"opset {text(facts.get(1), 200)}".strip()] = str(facts.get(2, ""))[:200]
        if not graph:
            raise ArchiveDamaged("it is no ONNX model: it has no graph")
        tensors, program = self._graph(graph)
        return {"format": "ONNX", "tensors": list(tensors.values()), "metadata": metadata, "program": program}

    def _graph(self, graph: memoryview) -> tuple[dict[str, list[Any]], Program]:
        tensors, nodes, shapes = dict[str, list[Any]](), list[Node](), dict[str, ValueShape]()
        inputs, outputs, name = list[str](), list[str](), self._reading.name.rpartition(".")[0]
        for number, value in self._fields(graph):
            if number == 1:
                self._reading.budget.spend("items", 1, "its list of nodes")
                nodes.append(self._node(value))
            elif number == 2:
                name = text(value, 200) or name
            elif number == 5:
                self._reading.budget.spend("items", 1, "its list of tensors")
                tensor = self._tensor(value)
                if tensor is not None:
                    tensors[tensor[0]] = tensor
            elif number in (11, 12, 13):
                value_name, shape = self._value_info(value)
                shapes[value_name] = shape
                {11: inputs, 12: outputs, 13: []}[number].append(value_name)
        flowing = tuple(value for value in inputs if value not in tensors)
        buffers = frozenset(_buffers(nodes, tensors))
        return tensors, Program(
            name, flowing, tuple(outputs), tuple(nodes), shapes, {key: key for key in tensors}, buffers
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _node(self, message: Any) -> Node:
        inputs, outputs, settings = list[str](), list[str](), list[tuple[str, str]]()
        name = operation = ""
        scopes: list[str] = []
        for number, value in self._fields(message):
            if number == 1:
                inputs.append(text(value))
            elif number == 2:
                outputs.append(text(value))
            elif number == 3:
                name = text(value)
            elif number == 4:
                operation = text(value, 200)
            elif number == 5 and len(settings) < 50:
                settings += self._attribute(value)
            elif number == 9:
                scopes = scopes or _scopes(self._messages.last(value))
        return Node(operation, tuple(inputs), tuple(outputs), tuple(_modules(name, scopes)), tuple(settings))

    def _attribute(self, message: Any) -> list[tuple[str, str]]:
        """The name and value of a small attribute; graphs and tensors are named only."""
        name, values = "", list[Any]()
        for number, value in self._fields(message):
            if number == 1:
                name = text(value, 200)
            elif number == 2 and (single := real(value, "<f")) is not None:
                values.append(round(single, 6))
            elif number in (3, 8) and len(values) < 1000:
                values += [signed(integer) for integer in self._messages.numbers(value)][:20]
            elif number in (4, 9) and len(values) < 1000:
                values.append(text(value, 100))
        return [(name, str(values[0] if len(values) == 1 else values))] if values else []

    # -- tensors -----------------------------------------------------------------------------------------------------

    def _value_info(self, message: Any) -> tuple[str, ValueShape]:
        last = self._messages.last
        facts = last(message)
        described = last(last(facts.get(2, _EMPTY)).get(1, _EMPTY))
        shape = list[int]()
        for number, dimension in self._fields(described.get(2, _EMPTY)):
            if number == 1 and len(shape) < _MOST_AXES:
                length = last(dimension).get(1, UNKNOWN)
                shape.append(length if isinstance(length, int) and length < 2**40 else UNKNOWN)
        kind = described.get(1, 0)
        return text(facts.get(1)), ValueShape(tuple(shape), _TYPES.get(kind, "") if isinstance(kind, int) else "")

    def _tensor(self, message: Any) -> list[Any] | None:
        shape, facts, external = list[int](), dict[int, Any](), dict[str, str]()
        pieces: dict[int, list[Any]] = {}  # of the numbers, which may come together or one by one
        for number, value in self._fields(message):
            if number == 1:
                shape += self._messages.numbers(value)
            elif number == 13:
                entry = self._messages.last(value)
                external[text(entry.get(1), 100)] = text(entry.get(2), 4096)
            elif number in (*_LISTS, *_VARINTS):
                pieces.setdefault(number, []).append(value)
            else:
                facts[number] = value
        kind = facts.get(2, 0)
        name, type = text(facts.get(8)), _TYPES.get(kind, "") if isinstance(kind, int) else ""
        if not type:
            return None  # text, or a type of less than a byte
        if len(shape) > _MOST_AXES or any(length >= 2**40 for length in shape):
            raise ArchiveDamaged(f"{short_repr(name)} would have the shape {human_shape(shape[:8])}")
        dtype = DTYPES[type]
        file, begin, end = (
            self._external(external, -(-prod(shape) // dtype.numbers) * dtype.bytes)
            if external
            else self._embedded(facts.get(9), pieces, type, dtype.bytes)
        )
        return [name, type, shape, file, begin, end, 0, None]

    def _embedded(self, raw: Any, pieces: dict[int, list[Any]], type: str, size: int) -> tuple[int, int, int]:
        """Where the bytes of a tensor lie: in the file, or, of a list of numbers, with the answer."""
        if isinstance(raw, memoryview):
            begin = place_of(raw, self._data)
            return self._number, begin, begin + len(raw)
        for number, listed in _LISTS.items():
            if number in pieces and type in listed:
                size = DTYPES[listed[0]].bytes
                return BLOB, *self._reading.keep(b"".join(part for part in pieces[number] if is_list_of(part, size)))
        for number in _VARINTS:
            if number in pieces:
                words = np.array([each for piece in pieces[number] for each in self._messages.numbers(piece)], "<u8")
                return BLOB, *self._reading.keep(np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8)[:, :size]))
        return BLOB, 0, 0

    def _external(self, external: dict[str, str], size: int) -> tuple[int, int, int]:
        """Where the bytes of a tensor lie in a file beside the model."""
        location = external.get("location", "")
        try:
            if Path(location).name != location:
                raise FileNotFoundError
            number = self._reading.file(location)
        except FileNotFoundError:
            raise ArchiveDamaged(f"its data are in {short_repr(location)}, which is no file beside it") from None
        begin, length = int(external.get("offset", 0)), int(external.get("length", size))
        if not 0 <= begin <= begin + length <= len(self._reading.data(number)):
            raise ArchiveDamaged(f"a tensor lies outside of {short_repr(location)}")
        return number, begin, begin + length


def _buffers(nodes: list[Node], tensors: dict[str, list[Any]]) -> Iterator[str]:
    """Yield the tensors that cannot be parameters: statistics, integers and truth values."""
    for node in nodes:
        yield from node.inputs[_STATISTICS.get(node.operation, slice(0))]
    yield from (name for name, tensor in tensors.items() if tensor[1] in ("int32", "int64", "bool"))


def _scopes(facts: dict[int, Any]) -> list[str]:
    """What torch's exporter says about where a node comes from: "['', 'body', 'body.0', 'linear']"."""
    if text(facts.get(1), 200) != "pkg.torch.onnx.name_scopes":
        return []
    try:
        scopes = ast.literal_eval(text(facts.get(2), 10_000))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    named = [str(scope) for scope in scopes if scope] if isinstance(scopes, list) else []
    return named[:-1]  # the last is the node's own


def _modules(name: str, scopes: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the modules around a node: from its scopes, or its name "/body/body.0/Gemm"."""
    parts = scopes or [part for part in name.split("/")[1:-1] if part]
    address = ""
    for part in parts[:40]:
        address = part if scopes or part.startswith(f"{address}.") or not address else f"{address}.{part}"
        yield address, ""
