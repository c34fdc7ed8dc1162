"""Codecs of stored values: raw, zstd, zlib, float16, int8.

A value that a lossy codec cannot represent is stored raw.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import TYPES, bytes_of
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.records import Sample

CODECS = ("raw", "zstd", "zlib", "float16", "int8", "float16+zstd", "int8+zstd")
Codec = str | Callable[[Sample], str]
_SOURCE_TYPES = {"float16": ("float32", "float64"), "int8": ("float16", "float32", "float64")}
_ZSTD_LEVEL, _ZLIB_LEVEL = 3, 1
_ZLIB_MAX_RATIO = 1100  # deflate takes at least a bit for 258 bytes, and a few for its frame
_ZSTD_MAX_RATIO = 1 << 15  # no zstd frame expands more: each 128 KiB take at least 4 bytes
_MIN_SCALE = float(np.finfo(np.float64).tiny)  # below it, a scale is subnormal and too imprecise to divide by


def codec_for(codec: Codec, sample: Sample) -> str:
    """Return the codec name for a sample; a name given to the Writer was checked there."""
    return codec if isinstance(codec, str) else check_codec(codec(sample), f" for {sample.layer!r}")


def check_codec(name: Any, where: str = "") -> str:
    """Validate a codec name; `where` is appended to the error's subject."""
    if name not in CODECS:
        raise BadArgument(f"codec={name!r}{where}: use one of {', '.join(CODECS)}, or a function that picks one")
    if name.endswith("zstd"):
        _import_zstandard()
    return str(name)


def pack(codec: str, kind: str, payload: memoryview) -> tuple[dict[str, Any], Any]:
    """Encode a payload; return the codec fields of its index entry and the bytes to store."""
    fields: dict[str, Any] = {}
    stored: Any = payload
    if codec == "raw":
        return fields, stored
    lossy = codec.removesuffix("zlib").removesuffix("zstd").removesuffix("+")
    if kind in _SOURCE_TYPES.get(lossy, ()) and payload.nbytes:
        values = np.frombuffer(payload, TYPES[kind])
        fields, stored = (_to_float16 if lossy == "float16" else _to_int8)(values, payload)
    if codec.endswith("zstd"):
        compressed = _import_zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(stored)
        if len(compressed) < len(stored):
            fields, stored = {**fields, "zstd": len(stored)}, compressed
    elif codec == "zlib":
        compressed = zlib.compress(stored, _ZLIB_LEVEL)
        if len(compressed) < len(stored):
            fields, stored = {"zlib": len(stored)}, compressed
    return fields, stored


def _to_float16(values: NDArray[Any], payload: memoryview) -> tuple[dict[str, Any], memoryview]:
    with np.errstate(over="ignore", under="ignore"):
        halves = values.astype("<f2")
    if np.count_nonzero(np.isinf(halves)) != np.count_nonzero(np.isinf(values)):
        return {}, payload  # a number beyond 65504 would read as infinite
    return {"as": {"type": "float16"}}, memoryview(halves.view(np.uint8).data)


def _to_int8(values: NDArray[Any], payload: memoryview) -> tuple[dict[str, Any], memoryview]:
    peak = max(float(values.max()), -float(values.min()))  # NaN stays NaN
    scale = peak / 127 if peak else 1.0
    if not _can_scale(scale, values.dtype):
        return {}, payload
    numbers = np.rint(values.astype(np.float64) / scale).astype(np.int8)
    return {"as": {"type": "int8", "scale": scale}}, memoryview(numbers.view(np.uint8).data)


def _can_scale(scale: float, kind: np.dtype[Any]) -> bool:
    """Return whether 127 steps of a scale are finite in a type."""
    with np.errstate(over="ignore"):
        return _MIN_SCALE <= scale < math.inf and bool(np.isfinite(np.float64(scale * 127).astype(kind)))


def parse_codec(entry: Mapping[str, Any], kind: str, shape: tuple[int, ...]) -> tuple[str, float]:
    """Parse the codec and scale of an index entry; raise where its stored size is impossible."""
    stored_type, name, scale = kind, "", 1.0
    if "as" in entry:
        encoding = entry["as"]
        name, scale = encoding["type"], encoding.get("scale", 1.0)
        is_valid = kind in _SOURCE_TYPES.get(name, ()) and set(encoding) == {
            "type",
            *(["scale"] if name == "int8" else []),
        }
        if not is_valid or type(scale) is not float or not _can_scale(scale, TYPES[kind]):
            raise ArchiveDamaged(f"a value of type {kind} cannot be stored as {encoding!r}")
        stored_type = name
    needed, stored = bytes_of(stored_type, shape), entry["stored"]
    if "zstd" in entry:
        if type(entry["zstd"]) is not int or entry["zstd"] != needed or not needed <= stored * _ZSTD_MAX_RATIO:
            raise ArchiveDamaged(f"a value of {needed} bytes cannot be {stored} compressed ones of {entry['zstd']!r}")
        return (f"{name}+zstd" if name else "zstd"), scale
    if "zlib" in entry:
        if name or type(entry["zlib"]) is not int or entry["zlib"] != needed or needed > stored * _ZLIB_MAX_RATIO:
            raise ArchiveDamaged(f"a value of {needed} bytes cannot be {stored} compressed ones of {entry['zlib']!r}")
        return "zlib", scale
    if needed != stored:
        raise ArchiveDamaged(
            f"a value of {needed} bytes cannot be {stored} stored ones: it is cut, or not of its shape"
        )
    return name or "raw", scale


def unpack(codec: str, scale: float, kind: str, shape: tuple[int, ...], stored: memoryview) -> memoryview:
    """Decode stored bytes to the payload, as exactly as the codec allows.

    A copy unless it is raw.
    """
    lossy, data = codec.removesuffix("zlib").removesuffix("zstd").removesuffix("+"), stored
    if codec == "zlib":
        data = memoryview(_inflate(stored, bytes_of(kind, shape)))
    elif codec.endswith("zstd"):
        data = memoryview(_decompress(stored, bytes_of(lossy or kind, shape)))
    if lossy == "float16":
        data = _as_bytes(np.frombuffer(data, "<f2").astype(TYPES[kind]))
    elif lossy == "int8":
        data = _as_bytes((np.frombuffer(data, "i1").astype(np.float64) * scale).astype(TYPES[kind]))
    return data


def _as_bytes(values: NDArray[Any]) -> memoryview:
    return memoryview(values.view(np.uint8).data) if values.size else memoryview(bytearray())


def _decompress(stored: memoryview, size: int) -> bytearray:
    zstandard = _import_zstandard()
    try:
        if zstandard.frame_content_size(stored) != size:  # zstandard would allocate it, whatever the index says
            raise ArchiveDamaged(f"{len(stored)} compressed bytes do not hold the {size} that the index says")
        data = bytearray(zstandard.ZstdDecompressor().decompress(stored, max_output_size=size, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise ArchiveDamaged(f"{len(stored)} compressed bytes cannot be read: {error}") from None
    if len(data) != size:
        raise ArchiveDamaged(f"{len(stored)} compressed bytes hold {len(data)}, and the index says {size}")
    return data


def _inflate(stored: memoryview, size: int) -> bytearray:
    try:
        inflater = zlib.decompressobj()
        data = bytearray(inflater.decompress(stored, size + 1))
    except zlib.error as error:
        raise ArchiveDamaged(f"{len(stored)} compressed bytes cannot be read: {error}") from None
    if len(data) != size or not inflater.eof or inflater.unused_data:
        raise ArchiveDamaged(f"{len(stored)} compressed bytes hold {len(data)}, and the index says {size}")
    return data


def _import_zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise TorcheerError(
            "the codec zstd needs zstandard, which is not installed. Try: pip install 'torcheer[all]'"
        ) from None
    return zstandard
