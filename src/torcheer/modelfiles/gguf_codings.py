"""The types of GGUF: their blocks, and for the common ones how they are decoded.

After `gguf-py/gguf/quants.py` of llama.cpp, whose results tests compare with.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.modelfiles.file_tensor import Array, Bytes, Coding, plain_coding

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


def _known(elements: int, bytes: int) -> Coding:
    return Coding(elements, bytes, None)


# Number in the file -> its name and coding.
CODINGS: Final[dict[int, tuple[str, Coding]]] = {
    0: ("float32", plain_coding("float32")), 1: ("float16", plain_coding("float16")),
    2: ("Q4_0", Coding(32, 18, _q4_0)), 3: ("Q4_1", Coding(32, 20, _q4_1)), 6: ("Q5_0", Coding(32, 22, _q5_0)),
    7: ("Q5_1", Coding(32, 24, _q5_1)), 8: ("Q8_0", Coding(32, 34, _q8_0)), 9: ("Q8_1", _known(32, 36)),
    10: ("Q2_K", _known(256, 84)), 11: ("Q3_K", _known(256, 110)), 12: ("Q4_K", Coding(256, 144, _q4_k)),
    13: ("Q5_K", Coding(256, 176, _q5_k)), 14: ("Q6_K", Coding(256, 210, _q6_k)), 15: ("Q8_K", _known(256, 292)),
    16: ("IQ2_XXS", _known(256, 66)), 17: ("IQ2_XS", _known(256, 74)), 18: ("IQ3_XXS", _known(256, 98)),
    19: ("IQ1_S", _known(256, 50)), 20: ("IQ4_NL", _known(32, 18)), 21: ("IQ3_S", _known(256, 110)),
    22: ("IQ2_S", _known(256, 82)), 23: ("IQ4_XS", _known(256, 136)), 24: ("int8", plain_coding("int8")),
    25: ("int16", plain_coding("int16")), 26: ("int32", plain_coding("int32")), 27: ("int64", plain_coding("int64")),
    28: ("float64", plain_coding("float64")), 29: ("IQ1_M", _known(256, 56)),
    30: ("bfloat16", plain_coding("bfloat16")), 34: ("TQ1_0", _known(256, 54)),
    35: ("TQ2_0", _known(256, 66)), 39: ("MXFP4", _known(32, 17)),
}  # fmt: skip
