"""Reads ONNX files: the graph and its weights, from the protobuf itself; the onnx package would copy all of it.

External data are read from files beside the model, and nowhere else.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.errors import ArchiveDamaged
from torcheer.modelfiles.file_tensor import Bytes, FileTensor, plain_coding
from torcheer.modelfiles.model_file import ModelFile
from torcheer.modelfiles.program_nodes import UNKNOWN, Node, Program, ValueShape
from torcheer.modelfiles.protobuf_fields import fields, numbers, signed, text
from torcheer.terminal import human_shape, short_repr

_TYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
}  # fmt: skip
_LISTS: Final = {4: ("float32", "<f4"), 10: ("float64", "<f8")}  # fields of numbers, besides those of varints
_STATISTICS: Final = {"BatchNormalization": slice(3, 5)}  # inputs that training updates without gradients
_MOST_LISTED: Final = 10_000_000  # numbers of a tensor that is a list of varints
_MOST_NODES: Final = 1_000_000


def read_file(path: Path) -> ModelFile:
    """Open an ONNX model."""
    data: Any = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    graph, metadata = memoryview(b""), dict[str, str]()
    for number, value in fields(memoryview(data)):
        if number == 7 and isinstance(value, memoryview):
            graph = value
        elif number in (2, 3):
            metadata[{2: "producer", 3: "producer version"}[number]] = text(value, 200)
        elif number == 8:
            metadata.update(_opset(value))
    if not graph:
        raise ArchiveDamaged(f"{path} is no ONNX model: it has no graph")
    tensors, program = _graph(graph, path)
    return ModelFile(path, "ONNX", tensors, metadata, program)


def _opset(value: Any) -> dict[str, str]:
    facts = dict(fields(value))
    return {f"opset {text(facts.get(1, b''), 200)}".strip(): str(facts.get(2, ""))}


def _graph(graph: memoryview, path: Path) -> tuple[dict[str, FileTensor], Program]:
    tensors, nodes, shapes = dict[str, FileTensor](), list[Node](), dict[str, ValueShape]()
    inputs, outputs, name = list[str](), list[str](), path.stem
    for number, value in fields(graph):
        if number == 1:
            nodes.append(_node(value))
        elif number == 2:
            name = text(value, 200) or name
        elif number == 5:
            tensor = _tensor(value, path)
            if tensor is not None:
                tensors[tensor.name] = tensor
        elif number in (11, 12, 13):
            value_name, shape = _value_info(value)
            shapes[value_name] = shape
            {11: inputs, 12: outputs, 13: []}[number].append(value_name)
        if len(nodes) > _MOST_NODES:
            raise ArchiveDamaged(f"{path} has more than {_MOST_NODES:,} nodes")
    flowing = tuple(value for value in inputs if value not in tensors)
    weights = {key: key for key in tensors}
    return tensors, Program(
        name, flowing, tuple(outputs), tuple(nodes), shapes, weights, frozenset(_buffers(nodes, tensors))
    )


def _buffers(nodes: list[Node], tensors: dict[str, FileTensor]) -> Iterator[str]:
    """Yield the tensors that cannot be parameters: statistics, integers and truth values."""
    for node in nodes:
        yield from node.inputs[_STATISTICS.get(node.operation, slice(0))]
    yield from (name for name, tensor in tensors.items() if tensor.type in ("int32", "int64", "bool"))


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node(message: Any) -> Node:
    inputs, outputs, settings = list[str](), list[str](), list[tuple[str, str]]()
    name = operation = ""
    scopes: list[str] = []
    for number, value in fields(message):
        if number == 1:
            inputs.append(text(value))
        elif number == 2:
            outputs.append(text(value))
        elif number == 3:
            name = text(value)
        elif number == 4:
            operation = text(value, 200)
        elif number == 5 and len(settings) < 50:
            settings += _attribute(value)
        elif number == 9:
            scopes = scopes or _scopes(value)
    return Node(operation, tuple(inputs), tuple(outputs), tuple(_modules(name, scopes)), tuple(settings))


def _attribute(message: Any) -> list[tuple[str, str]]:
    """The name and value of a small attribute; graphs and tensors are named only."""
    name, values = "", list[Any]()
    for number, value in fields(message):
        if number == 1:
            name = text(value, 200)
        elif number == 2 and isinstance(value, memoryview):
            values.append(round(struct.unpack("<f", value)[0], 6))
        elif number in (3, 8):
            values += [signed(integer) for integer in numbers(value)][:20]
        elif number in (4, 9):
            values.append(text(value, 100))
    return [(name, str(values[0] if len(values) == 1 else values))] if values else []


def _scopes(message: Any) -> list[str]:
    """What torch's exporter says about where a node comes from: "['', 'body', 'body.0', 'linear']"."""
    facts = dict(fields(message))
    if text(facts.get(1, b""), 200) != "pkg.torch.onnx.name_scopes":
        return []
    try:
        scopes = ast.literal_eval(text(facts.get(2, b""), 10_000))
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


# -- tensors -----------------------------------------------------------------------------------------------------------


def _value_info(message: Any) -> tuple[str, ValueShape]:
    facts = dict(fields(message))
    tensor_type = dict(fields(facts.get(2, memoryview(b"")))).get(1, memoryview(b""))  # type: ignore[arg-type]
    described = dict(fields(tensor_type))  # type: ignore[arg-type]
    shape = []
    for number, dimension in fields(described.get(2, memoryview(b""))):  # type: ignore[arg-type]
        if number == 1:
            length = dict(fields(dimension)).get(1, UNKNOWN)  # type: ignore[arg-type]
            shape.append(length if isinstance(length, int) and length < 2**40 else UNKNOWN)
    kind = described.get(1, 0)
    return text(facts.get(1, b"")), ValueShape(tuple(shape[:32]), _TYPES.get(kind, "") if isinstance(kind, int) else "")


def _tensor(message: Any, path: Path) -> FileTensor | None:
    shape, facts, external = list[int](), dict[int, Any](), dict[str, str]()
    for number, value in fields(message):
        if number == 1:
            shape += numbers(value)
        elif number == 13:
            entry = dict(fields(value))  # type: ignore[arg-type]
            external[text(entry.get(1, b""), 100)] = text(entry.get(2, b""), 4096)
        else:
            facts[number] = value
    name, type = text(facts.get(8, b"")), _TYPES.get(facts.get(2, 0), "")
    if not type:
        return None  # text, or a type of less than a byte
    coding, sizes = plain_coding(type), tuple(shape)
    if any(length >= 2**40 for length in sizes):
        raise ArchiveDamaged(f"{path}: {short_repr(name)} would have the shape {human_shape(sizes[:8])}")
    data = _external(path, external, prod(sizes) * coding.bytes) if external else _embedded(facts, type, name)
    return FileTensor(name, sizes, type, data, coding)


def _embedded(facts: dict[int, Any], type: str, name: str) -> Bytes:
    """The bytes of a tensor in the file: raw, or a list of numbers, which is converted."""
    if 9 in facts:
        return np.frombuffer(facts[9], np.uint8)
    for number, (listed, form) in _LISTS.items():
        if number in facts and type == listed:
            return np.frombuffer(facts[number], form).view(np.uint8)
    for number in (5, 7, 11):
        if number in facts:
            values = list(numbers(facts[number]))
            if len(values) > _MOST_LISTED:
                raise ArchiveDamaged(f"{short_repr(name)} is a list of {len(values):,} numbers")
            width = plain_coding(type).bytes
            return np.frombuffer(b"".join((value % 2**64).to_bytes(8, "little")[:width] for value in values), np.uint8)
    return np.zeros(0, np.uint8)


def _external(path: Path, external: dict[str, str], size: int) -> Bytes:
    """The bytes of a tensor in a file beside the model."""
    location = external.get("location", "")
    file = path.parent / location
    if Path(location).name != location or not file.is_file():
        raise ArchiveDamaged(f"{path}: its data are in {short_repr(location)}, which is no file beside it")
    offset, length = int(external.get("offset", 0)), int(external.get("length", size))
    if not 0 <= offset <= offset + length <= file.stat().st_size:
        raise ArchiveDamaged(f"{path}: a tensor lies outside of {short_repr(location)}")
    return np.memmap(file, np.uint8, "r", offset=0)[offset : offset + length] if length else np.zeros(0, np.uint8)
