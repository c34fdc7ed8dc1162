"""Reads files with the reader that each format's own package has, and tells the same as `opening` does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from fuzz.opening import UNKNOWN, digest, digest_of_decoded


def read_safetensors(path: Path) -> Any:
    """safetensors, by its own package."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {"tensors": {name: _torch_tensor(file.get_tensor(name)) for name in file.keys()}}


def _torch_tensor(tensor: Any) -> Any:
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    data = ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.nbytes else b""
    if tensor.dtype == torch.bool:  # of any byte
        data = bytes(byte != 0 for byte in data)
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), digest(np.frombuffer(data, np.uint8))]


def read_gguf(path: Path) -> Any:
    """GGUF, by llama.cpp's package."""
    import gguf

    names = {kind: name for name, kind in gguf.GGMLQuantizationType.__members__.items()}
    plain = {"F32": "float32", "F16": "float16", "F64": "float64", "BF16": "bfloat16", "I8": "int8", "I16": "int16",
             "I32": "int32", "I64": "int64"}  # fmt: skip
    tensors = {}
    for tensor in gguf.GGUFReader(path).tensors:
        type = names[tensor.tensor_type]
        shape = [int(size) for size in tensor.shape][::-1]
        if type in plain:
            tensors[tensor.name] = [plain[type], shape, digest(tensor.data)]
            continue
        try:
            numbers = digest_of_decoded(gguf.dequantize(tensor.data, tensor.tensor_type))
        except NotImplementedError:
            numbers = UNKNOWN
        tensors[tensor.name] = [type, shape, numbers]
    return {"tensors": tensors}


def read_onnx(path: Path) -> Any:
    """ONNX, by its own package."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    names = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.DOUBLE: "float64"}
    tensors = {}
    for tensor in model.graph.initializer:
        if tensor.data_type in _PACKED:  # types of less than a byte are left out
            continue
        name = names.get(tensor.data_type, onnx.TensorProto.DataType.Name(tensor.data_type).lower())
        numbers = numpy_helper.to_array(tensor)
        if numbers.dtype == bool:  # of any byte
            numbers = numbers.view(np.uint8) != 0
        tensors[tensor.name] = [_ONNX_NAMES.get(name, name), list(tensor.dims), digest(numbers)]
    nodes = [[node.op_type, list(node.input), list(node.output)] for node in model.graph.node]
    return {"tensors": tensors, "nodes": nodes}


_PACKED: Final = (21, 22, 23, 25, 26)  # uint4, int4, float4e2m1, uint2, int2
_ONNX_NAMES: Final = {"float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}


def read_events(path: Path) -> Any:
    """The scalars of event files, by TensorBoard's own package."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.util import tensor_util

    steps: dict[int, dict[str, Any]] = {}
    for file in sorted(path.glob("*.tfevents.*")):
        for record in RawEventFileLoader(str(file)).Load():
            event = Event.FromString(record)
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                if plugin == "hparams":
                    continue
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    steps.setdefault(event.step, {})[value.tag] = value.simple_value
                elif kind == "tensor" and plugin in ("", "scalars") and not value.tensor.tensor_shape.dim:
                    numbers = tensor_util.make_ndarray(value.tensor)
                    if numbers.dtype.kind in "fiub":
                        steps.setdefault(event.step, {})[value.tag] = float(numbers)
    tags = {tag for step in steps.values() for tag in step}
    if not steps:
        return {"rows": {}}
    rows: dict[str, Any] = {"Step": sorted(steps)}
    for tag in tags - {"Step"}:
        rows[tag] = [str(steps[step][tag]) if tag in steps[step] else None for step in sorted(steps)]
    return {"rows": rows}


def read_torch(path: Path) -> Any:
    """A file of torch.save, by torch itself, without code."""
    import torch

    tensors: dict[str, Any] = {}
    _collect(torch.load(path, weights_only=True, map_location="cpu"), "", tensors, set())
    return {"tensors": tensors}


def _collect(value: Any, name: str, tensors: dict[str, Any], seen: set[int]) -> None:
    """Gather the tensors of nested dicts, lists and tuples by dotted names, as we name them; each container once."""
    import torch

    if isinstance(value, torch.Tensor):
        is_plain = value.layout is torch.strided and not value.is_quantized and value.device.type == "cpu"
        tensors[name or "tensor"] = _torch_tensor(value) if is_plain else UNKNOWN
        return
    if not isinstance(value, dict | list | tuple) or id(value) in seen or name.count(".") >= 29:
        return
    seen.add(id(value))
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        word = str(key) if isinstance(key, str | int) else type(key).__name__
        _collect(part, f"{name}.{word}" if name else word, tensors, seen)


def read_config(path: Path) -> Any:
    """The values of a config, by Python's own readers and PyYAML."""
    import json
    import re
    import tomllib

    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's, with the numbers of YAML 1.2: 1e5 is one."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9.]*[eE][-+]?[0-9]+$"), list("-+0123456789")
    )
    text = path.read_text("utf-8")
    parse = {".json": json.loads, ".toml": tomllib.loads, ".yaml": lambda text: yaml.load(text, Loader)}[path.suffix]
    return {"data": repr(_with_dates_as_texts(parse(text)))}


def _with_dates_as_texts(value: Any) -> Any:
    """A config as JSON would have it, in which dates are texts."""
    if isinstance(value, dict):
        return {key: _with_dates_as_texts(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_dates_as_texts(part) for part in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


READERS: Final[dict[str, Callable[[Path], Any]]] = {
    "config": read_config, "torch": read_torch, "safetensors": read_safetensors, "gguf": read_gguf,
    "onnx": read_onnx, "events": read_events,
}  # fmt: skip
