"""What stands on disk for a value: its bytes, or fewer. What a codec cannot hold is kept as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import TYPES, bytes_of
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.records import Sample

CODECS = ("raw", "zstd", "float16", "int8", "float16+zstd", "int8+zstd")
Codec = str | Callable[[Sample], str]
_HOLDS = {"float16": ("float32", "float64"), "int8": ("float16", "float32", "float64")}
_ZSTD_LEVEL = 3
_ZSTD_RATIO = 1 << 15  # no frame of zstd's grows more: each 128 KiB take 4 bytes or more
_LEAST_SCALE = float(np.finfo(np.float64).tiny)  # below, a scale has too few bits to divide by


def codec_for(codec: Codec, sample: Sample) -> str:
    """The name of the codec that is wanted for a sample; one that a Writer was given is `known` already."""
    return codec if isinstance(codec, str) else known(codec(sample), f" for {sample.layer!r}")


def known(name: Any, where: str = "") -> str:
    """A codec's name, if it is one."""
    if name not in CODECS:
        raise BadArgument(f"codec={name!r}{where}: use one of {', '.join(CODECS)}, or a function that picks one")
    if name.endswith("zstd"):
        _zstandard()
    return str(name)


def pack(codec: str, kind: str, payload: memoryview) -> tuple[dict[str, Any], Any]:
    """What an entry says of its codec, and the bytes to store."""
    about: dict[str, Any] = {}
    stored: Any = payload
    if codec == "raw":
        return about, stored
    lossy = codec.removesuffix("zstd").removesuffix("+")
    if kind in _HOLDS.get(lossy, ()) and payload.nbytes:
        values = np.frombuffer(payload, TYPES[kind])
        about, stored = (_to_float16 if lossy == "float16" else _to_int8)(values, payload)
    if codec.endswith("zstd"):
        small = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(stored)
        if len(small) < len(stored):
            about, stored = {**about, "zstd": len(stored)}, small
    return about, stored


def _to_float16(values: NDArray[Any], payload: memoryview) -> tuple[dict[str, Any], memoryview]:
    with np.errstate(over="ignore", under="ignore"):
        halves = values.astype("<f2")
    if np.count_nonzero(np.isinf(halves)) != np.count_nonzero(np.isinf(values)):
        return {}, payload  # a number beyond 65504 would read as infinite
    return {"as": {"type": "float16"}}, memoryview(halves.view(np.uint8).data)


def _to_int8(values: NDArray[Any], payload: memoryview) -> tuple[dict[str, Any], memoryview]:
    peak = max(float(values.max()), -float(values.min()))  # NaN stays one
    scale = peak / 127 if peak else 1.0
    if not _can_scale(scale, values.dtype):
        return {}, payload
    numbers = np.rint(values.astype(np.float64) / scale).astype(np.int8)
    return {"as": {"type": "int8", "scale": scale}}, memoryview(numbers.view(np.uint8).data)


def _can_scale(scale: float, kind: np.dtype[Any]) -> bool:
    """Whether 127 steps of a scale are a number of a type."""
    with np.errstate(over="ignore"):
        return _LEAST_SCALE <= scale < math.inf and bool(np.isfinite(np.float64(scale * 127).astype(kind)))


def read(entry: Mapping[str, Any], kind: str, shape: tuple[int, ...]) -> tuple[str, float]:
    """The codec and the scale that an entry of an index names, if its `stored` can be right."""
    held, name, scale = kind, "", 1.0
    if "as" in entry:
        found = entry["as"]
        name, scale = found["type"], found.get("scale", 1.0)
        good = kind in _HOLDS.get(name, ()) and set(found) == {"type", *(["scale"] if name == "int8" else [])}
        if not good or type(scale) is not float or not _can_scale(scale, TYPES[kind]):
            raise ArchiveDamaged(f"a value of type {kind} cannot be stored as {found!r}")
        held = name
    needed, stored = bytes_of(held, shape), entry["stored"]
    if "zstd" in entry:
        if type(entry["zstd"]) is not int or entry["zstd"] != needed or not needed <= stored * _ZSTD_RATIO:
            raise ArchiveDamaged(f"a value of {needed} bytes cannot be {stored} compressed ones of {entry['zstd']!r}")
        return (f"{name}+zstd" if name else "zstd"), scale
    if needed != stored:
        raise ArchiveDamaged(
            f"a value of {needed} bytes cannot be {stored} stored ones: it is cut, or not of its shape"
        )
    return name or "raw", scale


def unpack(codec: str, scale: float, kind: str, shape: tuple[int, ...], stored: memoryview) -> memoryview:
    """The bytes that `pack` was given, as exactly as the codec kept them; in memory of their own unless it is raw."""
    lossy, held = codec.removesuffix("zstd").removesuffix("+"), stored
    if codec.endswith("zstd"):
        held = memoryview(_decompressed(stored, bytes_of(lossy or kind, shape)))
    if lossy == "float16":
        held = _bytes(np.frombuffer(held, "<f2").astype(TYPES[kind]))
    elif lossy == "int8":
        held = _bytes((np.frombuffer(held, "i1").astype(np.float64) * scale).astype(TYPES[kind]))
    return held


def _bytes(values: NDArray[Any]) -> memoryview:
    return memoryview(values.view(np.uint8).data) if values.size else memoryview(bytearray())


def _decompressed(stored: memoryview, size: int) -> bytearray:
    zstandard = _zstandard()
    try:
        if zstandard.frame_content_size(stored) != size:  # it would be believed, whatever the index says
            raise ArchiveDamaged(f"{len(stored)} compressed bytes do not hold the {size} that the index says")
        found = bytearray(zstandard.ZstdDecompressor().decompress(stored, max_output_size=size, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise ArchiveDamaged(f"{len(stored)} compressed bytes cannot be read: {error}") from None
    if len(found) != size:
        raise ArchiveDamaged(f"{len(stored)} compressed bytes hold {len(found)}, and the index says {size}")
    return found


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise TorcheerError(
            "the codec zstd needs zstandard, which is not installed. Try: pip install 'torcheer[all]'"
        ) from None
    return zstandard
