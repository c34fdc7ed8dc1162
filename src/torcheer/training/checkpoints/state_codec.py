"""Encode state as tensors and strict JSON: no pickle, and nothing in it names code."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.terminal import short_repr
from torcheer.training.parallel.sharded_tensors import is_sharded, shard_of

MOST_DEPTH = 100
_DICTS: dict[str, type] = {"dict": dict, "ordered": OrderedDict, "counter": Counter}
_DICT_NAMES = {kind: name for name, kind in _DICTS.items()}
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_ARRAYS = "?biufcmMSU"  # numpy dtype kinds that are fully defined by their bytes
_PAIRS = {torch.complex128: "complex128", torch.complex32: "complex32"}  # not in safetensors: stored as pairs of reals


Pieces = dict[str, dict[str, Any]]  # a sharded tensor's name -> its whole shape, and where this rank's part begins


def pack(state: Any) -> tuple[dict[str, Tensor], Any]:
    """Split a state into tensors by name and a strict-JSON value for the remainder."""
    tensors, encoded, _ = pack_shards(state)
    return tensors, encoded


def pack_shards(state: Any) -> tuple[dict[str, Tensor], Any, Pieces]:
    """The same; of sharded tensors this rank's parts, and which parts they are."""
    packer = _Packer()
    encoded = packer.encode(state, ())
    return packer.tensors, encoded, packer.pieces


def unpack(tensors: Mapping[str, Tensor], encoded: Any) -> Any:
    """Rebuild the state that `pack` was given."""
    try:
        return _Unpacker(tensors).decode(encoded)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, RuntimeError) as error:
        raise ArchiveDamaged(f"a state cannot be read: {short_repr(error)}") from None


class _Packer:
    """One pass over a state that encodes it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.pieces: Pieces = {}
        self._names: dict[Any, str] = {}  # a tensor's memory -> its name: tied tensors are stored once

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "v": str(value)}
        if len(path) > MOST_DEPTH:
            raise BadArgument(f"{_dotted(path[:4])}… is nested more than {MOST_DEPTH} deep: does it hold itself?")
        if kind is list:
            return self._parts(value, path)
        if kind in _DICT_NAMES:
            return self._dict(value, path)
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        return self._encode_other(value, path)

    def _parts(self, values: Any, path: tuple[str, ...]) -> list[Any]:
        return [self.encode(value, (*path, str(number))) for number, value in enumerate(values)]

    def _dict(self, value: Any, path: tuple[str, ...]) -> Any:
        if type(value) is dict and "$" not in value and all(type(key) is str for key in value):
            return {key: self.encode(part, (*path, key)) for key, part in value.items()}
        pairs = [
            [self.encode(key, (*path, "a key")), self.encode(part, (*path, str(key)))] for key, part in value.items()
        ]
        return {"$": _DICT_NAMES[type(value)], "v": pairs}

    def _encode_other(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if kind is tuple or kind is torch.Size:
            return {"$": "tuple" if kind is tuple else "size", "v": self._parts(value, path)}
        if kind is complex:
            return {"$": "complex", "v": self._parts((value.real, value.imag), path)}
        if kind is bytes:
            return {"$": "bytes", "v": value.hex()}
        if kind is torch.dtype:
            return {"$": "dtype", "v": str(value)}
        if isinstance(value, np.generic) and value.dtype.kind in _ARRAYS:
            return {"$": "scalar", "dtype": value.dtype.str, "v": value.tobytes().hex()}
        if kind is np.ndarray and value.dtype.kind in _ARRAYS:
            data = torch.from_numpy(np.frombuffer(value.tobytes(), np.uint8).copy())
            return {
                "$": "array",
                "dtype": value.dtype.str,
                "shape": list(value.shape),
                "v": self._add_tensor(data, path),
            }
        raise _refusal(value, path)

    def _tensor(self, value: Tensor, path: tuple[str, ...]) -> Any:
        if is_sharded(value):
            part, begin, is_saved = shard_of(value)
            name = self._add_tensor(part.detach(), path)
            self.pieces[name] = {"shape": list(value.shape), "begin": begin, "is_saved": is_saved}
            return {"$": "tensor", "v": name}
        if type(value) not in (Tensor, torch.nn.Parameter) or value.is_meta or value.is_quantized or value.is_nested:
            raise _refusal(value, path)
        if value.layout != torch.strided:
            raise BadArgument(
                f"{_dotted(path)} is a tensor of layout {value.layout}: a checkpoint takes its to_dense()"
            )
        entry: dict[str, Any] = {"$": "tensor"}
        value = value.detach().resolve_conj().resolve_neg()
        if not value.is_contiguous() and _is_dense(value):  # channels_last and the like
            entry["order"] = _order(value)
        if value.dtype in _PAIRS:
            entry["pairs"], value = _PAIRS[value.dtype], torch.view_as_real(value)
        entry["v"] = self._add_tensor(value, path)
        return entry

    def _add_tensor(self, tensor: Tensor, path: tuple[str, ...]) -> str:
        memory = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and memory in self._names:
            return self._names[memory]
        name = ".".join(path) or "value"
        while name in self.tensors or name == "__metadata__":  # "a.b" in "c" and "b.c" in "a" would be one
            name += "'"
        self.tensors[name] = tensor
        self._names[memory] = name
        return name


class _Unpacker:
    """One pass over encoded state that rebuilds it."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def decode(self, encoded: Any) -> Any:
        if isinstance(encoded, list):
            return [self.decode(part) for part in encoded]
        if not isinstance(encoded, dict):
            return encoded
        if "$" not in encoded:
            return {key: self.decode(part) for key, part in encoded.items()}
        kind, inner = encoded["$"], encoded["v"]
        if kind in _DICTS:
            return _DICTS[kind]({self.decode(key): self.decode(part) for key, part in inner})
        if kind in ("tensor", "array"):
            return (self._tensor if kind == "tensor" else self._array)(encoded, self._tensors[inner])
        if kind == "scalar":
            return np.frombuffer(bytes.fromhex(inner), _dtype(encoded["dtype"]))[0]
        return _DECODERS[kind](self.decode(inner))

    def _tensor(self, entry: dict[str, Any], tensor: Tensor) -> Tensor:
        if "pairs" in entry:
            tensor = torch.view_as_complex(tensor)
        if "order" in entry:
            order = entry["order"]
            inverse = sorted(range(len(order)), key=order.__getitem__)
            tensor = tensor.permute(order).contiguous().permute(inverse)
        return tensor

    def _array(self, entry: dict[str, Any], tensor: Tensor) -> Any:
        return np.frombuffer(tensor.numpy().tobytes(), _dtype(entry["dtype"])).reshape(entry["shape"]).copy()


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "tuple": tuple,
    "size": torch.Size,
    "complex": lambda parts: complex(*parts),
    "bytes": bytes.fromhex,
    "dtype": _DTYPES.__getitem__,
}


def _dtype(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in _ARRAYS:
        raise ValueError(f"no array of type {text}")
    return dtype


def _order(tensor: Tensor) -> list[int]:
    """Return the dimensions of a tensor in memory order, outermost first."""
    strides = tensor.stride()
    return sorted(range(tensor.ndim), key=lambda dimension: -strides[dimension])


def _is_dense(tensor: Tensor) -> bool:
    return tensor.permute(_order(tensor)).is_contiguous()


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the state"


def _refusal(value: Any, path: tuple[str, ...]) -> BadArgument:
    kind = type(value)
    return BadArgument(
        f"{_dotted(path)} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold: it takes "
        "tensors, arrays, numbers, text, and lists, tuples and dicts of them. Have its state_dict() return those"
    )
