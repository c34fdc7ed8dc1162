"""Fingerprints of tensors: the same number on every device, at the speed of its memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torcheer.encoding import refusal, to_bytes
from torcheer.errors import BadArgument

_ROW_WORDS = 4096  # 64-bit words that are summed together
_PART_ROWS = 1024  # rows at a time: products of more would only use memory


def fingerprint(named: Iterable[tuple[str, Any]]) -> int:
    """Return a checksum over the names and the whole content of tensors.

    Each tensor's words are multiplied by odd numbers, one for each place, and summed modulo 2^64: a word that changes
    alone always changes the sum. Sums on a GPU are fetched together, at the end.
    """
    headers: list[str] = []
    sums: list[Any] = []
    factors: dict[torch.device, _Factors] = {}  # on each GPU
    for name, value in named:
        for part in value if isinstance(value, (tuple, list)) else [value]:  # quantised modules pack their weights
            is_tensor = isinstance(part, Tensor)
            headers.append(ascii((name, str(part.dtype), tuple(part.shape)) if is_tensor else (name, type(part))))
            sums.append(_content_sum(part, factors) if is_tensor else 0)
    return zlib.crc32("\n".join([*headers, *map(str, _fetch(sums))]).encode())


def _fetch(sums: list[Any]) -> list[int]:
    """Return sums as numbers, those of each device in one copy."""
    on_device: dict[torch.device, list[int]] = {}
    for place, content in enumerate(sums):
        if isinstance(content, Tensor):
            on_device.setdefault(content.device, []).append(place)
    for places in on_device.values():
        numbers = torch.stack([sums[place] for place in places]).tolist()
        for place, number in zip(places, numbers):
            sums[place] = number
    return [int(content) % 2**64 for content in sums]


@torch.no_grad()
def _content_sum(tensor: Tensor, factors: dict[torch.device, _Factors]) -> Any:
    """Return the sum of a tensor's words; 0 for layouts without plain data."""
    with suppress(RuntimeError, TypeError, NotImplementedError):
        tensor = tensor.detach()
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
        if not tensor.numel() or tensor.is_meta:
            return 0
        words = _words(tensor.resolve_conj().resolve_neg())
        if words.is_cpu:
            return _sum_numpy(words.numpy().view(np.uint64))
        if words.device not in factors:
            factors[words.device] = _Factors(words.device)
        return _sum_torch(words, factors[words.device])
    return 0


def _words(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes as 64-bit words, the last of them filled up with zeros."""
    data = tensor.contiguous().reshape(-1).view(torch.uint8)
    padding = -len(data) % 8
    if padding or data.data_ptr() % 8 or data.storage_offset() % 8:
        data = torch.cat([data, data.new_zeros(padding)])
    return data.view(torch.int64)


def _sum_numpy(words: NDArray[np.uint64]) -> int:
    with np.errstate(over="ignore"):
        rows = len(words) // _ROW_WORDS
        sums = np.einsum("ij,j->i", words[: rows * _ROW_WORDS].reshape(rows, _ROW_WORDS), _factors())
        rest = words[rows * _ROW_WORDS :]
        sums = np.append(sums, (rest * _factors()[: len(rest)]).sum(dtype=np.uint64))
        return int((sums * _row_factors(rows + 1)).sum(dtype=np.uint64))


class _Factors:
    """Factors of places and rows on a GPU, where a copy or a launch costs more than most weights' numbers."""

    def __init__(self, device: torch.device) -> None:
        self.places = torch.from_numpy(_factors().view(np.int64)).to(device)
        self._rows = self.places[:0]

    def rows(self, count: int) -> Tensor:
        """Return the factors of so many rows."""
        if count > len(self._rows):
            numbers = _row_factors(max(count, _PART_ROWS + 1)).view(np.int64)
            self._rows = torch.from_numpy(numbers).to(self.places.device)
        return self._rows[:count]


def _sum_torch(words: Tensor, factors: _Factors) -> Tensor:
    rows = len(words) // _ROW_WORDS
    table, rest = words[: rows * _ROW_WORDS].view(rows, _ROW_WORDS), words[rows * _ROW_WORDS :]
    sums = [(table[start : start + _PART_ROWS] * factors.places).sum(1) for start in range(0, rows, _PART_ROWS)]
    if len(rest):
        sums.append((rest * factors.places[: len(rest)]).sum()[None])
    whole = sums[0] if len(sums) == 1 else torch.cat(sums)
    return (whole * factors.rows(len(whole))).sum()


@cache
def _factors() -> NDArray[np.uint64]:
    """Return odd pseudo-random numbers, one for each place of a row (SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, _ROW_WORDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)


def _row_factors(rows: int) -> NDArray[np.uint64]:
    """Return an odd number for each row."""
    with np.errstate(over="ignore"):
        return np.arange(rows, dtype=np.uint64) * np.uint64(0xD1342543DE82EF94) + np.uint64(0x9E3779B97F4A7C15)


def old_weights_checksum(named: Iterable[tuple[str, Any]]) -> int:
    """Return what version 1 of an extraction stored of its weights: their bytes' CRC-32, read off every device."""
    crc = 0
    for name, value in named:
        for part in value if isinstance(value, (tuple, list)) else [value]:
            type_and_shape = (str(part.dtype), tuple(part.shape)) if hasattr(part, "detach") else type(part).__name__
            crc = zlib.crc32(_old_bytes(part), zlib.crc32(ascii((name, type_and_shape)).encode(), crc))
    return crc


def old_data_checksum(tensors: Iterable[Tensor]) -> int:
    """Return what version 1 stored of its first batch."""
    crc = 0
    for tensor in tensors:
        content = tensor if not refusal(tensor) else torch.tensor(tensor.shape)
        name, shape, data = to_bytes(content)
        crc = zlib.crc32(data, zlib.crc32(f"{name} {shape}".encode(), crc))
    return crc


def _old_bytes(value: Any) -> bytes | memoryview:
    if isinstance(value, Tensor):
        with suppress(BadArgument, RuntimeError, TypeError):
            value = value.dequantize() if value.is_quantized else value
            return to_bytes(value.to_dense() if value.layout is not torch.strided else value)[2]
    return b""
