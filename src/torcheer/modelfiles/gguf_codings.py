"""The blocks of GGUF, and for the common ones how they are decoded.

After `gguf-py/gguf/quants.py` of llama.cpp, whose results tests compare with.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.modelfiles.file_tensor import Array, Bytes, Coding
from torcheer.vocabulary.dtypes import BLOCKS

_LOW_HIGH: Final = np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)


def _half(blocks: Bytes, place: int) -> NDArray[np.float32]:
    """A column of float16 as (blocks, 1) float32."""
    halves: Any = np.ascontiguousarray(blocks[:, place : place + 2]).view("<f2")
    return np.asarray(halves.astype(np.float32))


def _nibbles(bytes: Bytes) -> Bytes:
    """The low halves of 16 bytes, then the high ones."""
    return np.concatenate([bytes & 15, bytes >> 4], axis=1)


def _fifth_bits(blocks: Bytes, place: int) -> Bytes:
    """The 32 bits at a place, as 0 or 16."""
    words: Any = np.ascontiguousarray(blocks[:, place : place + 4]).view("<u4")
    return np.asarray(((words >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8) << 4)


def _q8_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _q4_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.int8) - 8)


def _q4_1(blocks: Bytes) -> Array:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Array:
    return _half(blocks, 0) * ((_nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).astype(np.int8) - 16)


def _q5_1(blocks: Bytes) -> Array:
    return _half(blocks, 0) * (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)) + _half(blocks, 2)


def _scales_and_offsets(blocks: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and offset of the 8 parts of 32 numbers: 6 bits each, in 12 bytes at place 4; (blocks, 8, 1)."""
    low, middle, high = np.split(blocks[:, 4:16].reshape(-1, 3, 4), 3, axis=1)
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], axis=-1).reshape(-1, 8)
    offsets = np.concatenate([middle & 63, (high >> 4) | ((middle >> 2) & 48)], axis=-1).reshape(-1, 8)
    return (_half(blocks, 0) * scales)[:, :, None], (_half(blocks, 2) * offsets)[:, :, None]


def _q4_k(blocks: Bytes) -> Array:
    scales, offsets = _scales_and_offsets(blocks)
    quants = ((blocks[:, 16:].reshape(-1, 4, 1, 32) >> _LOW_HIGH) & 15).reshape(-1, 8, 32)
    return np.asarray((scales * quants - offsets).reshape(-1, 256))


def _q5_k(blocks: Bytes) -> Array:
    scales, offsets = _scales_and_offsets(blocks)
    low = ((blocks[:, 48:].reshape(-1, 4, 1, 32) >> _LOW_HIGH) & 15).reshape(-1, 8, 32)
    high = (blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1
    return np.asarray((scales * (low | (high << 4)) - offsets).reshape(-1, 256))


def _q6_k(blocks: Bytes) -> Array:
    low = ((blocks[:, :128].reshape(-1, 2, 1, 64) >> _LOW_HIGH) & 15).reshape(-1, 8, 32)
    places = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> places) & 3).reshape(-1, 8, 32)
    quants = ((low | (high << 4)).astype(np.int8) - 32).reshape(-1, 16, 16)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return np.asarray((scales[:, :, None] * quants).reshape(-1, 256))


_DECODERS: Final = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}  # fmt: skip
CODINGS: Final[dict[str, Coding]] = {
    name: Coding(block.numbers, block.bytes, _DECODERS.get(name)) for name, block in BLOCKS.items()
}
