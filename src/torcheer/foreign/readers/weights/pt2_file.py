"""Reads programs of `torch.export.save`: the graph is JSON in a zip, weights are files in it. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.foreign.program_nodes import Node, Program, ValueShape
from torcheer.foreign.readers.reading import Reading, plain_text
from torcheer.foreign.readers.weights.torch_zip import TorchZip
from torcheer.terminal import short_repr
from torcheer.vocabulary.dtypes import codes

_TYPES: Final = {code: row.name for code, row in codes("pt2").items()}


def read(reading: Reading) -> dict[str, Any]:
    """Read an exported program."""
    archive = TorchZip(reading)
    models = [name for name in archive.names() if name.startswith("models/") and name.endswith(".json")]
    if not models:
        raise BadArgument("it has no models/…json in it: torch.export.save before 2.8 wrote it; save it again")
    described = reading.json(archive.text(models[0]), models[0])
    name = models[0].removeprefix("models/").removesuffix(".json")
    tensors = dict(_weights(archive, f"data/weights/{name}_weights_config.json"))
    tensors |= dict(_weights(archive, f"data/constants/{name}_constants_config.json"))
    reading.budget.spend("items", len(described["graph_module"]["graph"]["nodes"]), models[0])
    return {
        "format": "torch.export",
        "tensors": list(tensors.values()),
        "metadata": {
            key: plain_text(described[key]) for key in ("torch_version", "schema_version") if key in described
        },
        "program": _program(described, tensors, reading.name.rpartition(".")[0]),
    }


def _weights(archive: TorchZip, config: str) -> Iterator[tuple[str, list[Any]]]:
    if config not in archive:
        return
    folder = config.rpartition("/")[0]
    for name, entry in archive.reading.json(archive.text(config), config).get("config", {}).items():
        meta = entry.get("tensor_meta") or {}
        if entry.get("use_pickle") or meta.get("dtype") not in _TYPES:
            continue  # a pickled object could run code
        type, shape = _TYPES[meta["dtype"]], tuple(map(_size, meta["sizes"]))
        begin, end = archive.place(f"{folder}/{entry['path_name']}")
        offset, strides = _size(meta.get("storage_offset", {"as_int": 0})), tuple(map(_size, meta["strides"]))
        yield name, [name, type, shape, archive.number, begin, end, offset, strides]


def _size(size: Any) -> int:
    """A length; of a symbolic one its hint."""
    number = size.get("as_int")
    if number is None:
        number = ((size.get("as_expr") or {}).get("hint") or {}).get("as_int", 0)
    if type(number) is not int or number < 0:
        raise ArchiveDamaged(f"a size is {short_repr(size)}")
    return number


def _program(described: dict[str, Any], tensors: dict[str, list[Any]], name: str) -> Program:
    module = described["graph_module"]
    graph, signature = module["graph"], module["signature"]
    kinds, weights = dict[str, str](), dict[str, str]()
    for kind, value, held in _weight_names(signature["input_specs"]):
        kinds[held], weights[value] = kind, held
    shapes = {
        value: ValueShape(tuple(map(_size, meta["sizes"])), _TYPES.get(meta["dtype"], ""))
        for value, meta in graph["tensor_values"].items()
    }
    inputs = [value for argument in graph["inputs"] for value in _values(argument) if value not in weights]
    outputs = [value for argument in graph["outputs"] for value in _values(argument)]
    nodes = tuple(map(_node, graph["nodes"]))
    known = {value: tensor for value, tensor in weights.items() if tensor in tensors}
    buffers = frozenset(held for held, kind in kinds.items() if kind != "parameter")
    return Program(name, tuple(inputs), tuple(outputs), nodes, shapes, known, buffers)


def _weight_names(specs: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the kind of each weight, the value that it is in the graph, and its name."""
    for spec in specs:
        for kind, entry in spec.items():
            name = entry.get(f"{kind}_name") if isinstance(entry, dict) else None
            if isinstance(name, str) and isinstance(entry["arg"].get("name"), str):
                yield kind, entry["arg"]["name"], name


def _node(node: dict[str, Any]) -> Node:
    parts = str(node["target"]).split(".")
    operation = parts[-2] if len(parts) > 2 and parts[:2] == ["torch", "ops"] else parts[-1]
    settings = [
        (str(given["name"]), plain_text(_setting(given["arg"]))) for given in node["inputs"] if not _is_tensor(given)
    ]
    return Node(
        operation, tuple(value for given in node["inputs"] for value in _values(given["arg"])),
        tuple(value for argument in node["outputs"] for value in _values(argument)),
        tuple(_modules(node.get("metadata", {}).get("nn_module_stack", ""))), tuple(settings),
    )  # fmt: skip


def _is_tensor(given: dict[str, Any]) -> bool:
    return any(True for _ in _values(given["arg"]))


def _setting(argument: Any) -> Any:
    return next(iter(argument.values()), None) if isinstance(argument, dict) and len(argument) == 1 else argument


def _values(argument: Any, depth: int = 0) -> Iterator[str]:
    """Yield the names of the tensors in an argument."""
    if not isinstance(argument, dict) or depth > 5:
        return
    for kind, value in argument.items():
        if kind == "as_tensor" and isinstance(value, dict) and isinstance(value.get("name"), str):
            yield value["name"]
        elif kind in ("as_tensors", "as_optional_tensors") and isinstance(value, list):
            for part in value:
                yield from _values({"as_tensor": part} if kind == "as_tensors" else part, depth + 1)


def _modules(stack: str) -> Iterator[tuple[str, str]]:
    """Yield the modules around a node: "L__self__conv,conv,torch.nn.modules.conv.Conv2d;…" """
    for part in stack.split(";"):
        fields = part.split(",")
        if len(fields) >= 3 and fields[1]:
            address = fields[1].removeprefix("L['self'].").partition("@")[0]
            yield address, fields[2].rpartition(".")[2]
