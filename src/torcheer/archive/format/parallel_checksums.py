"""CRC-32 by several threads, for systems without isal: pieces of their own, combined."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from torcheer.encoding import crc32

_PIECE_BYTES = 2 << 20
_MAX_THREADS = 8
_POLYNOMIAL = 0xEDB88320  # of CRC-32, its bits reversed, as all numbers here
_ONE = 1 << 31  # the polynomial 1


class ParallelChecksum:
    """A CRC-32 whose pieces are computed by threads; `close` ends them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), "torcheer-checksum")

    def __call__(self, data: Any, start: int = 0) -> int:
        view = memoryview(data)
        pieces = [view[place : place + _PIECE_BYTES] for place in range(0, len(view), _PIECE_BYTES)]
        if len(pieces) < 2:
            return crc32(view, start)
        crc = start
        for piece, own in zip(pieces, self._threads.map(crc32, pieces)):
            crc = combine(crc, own, len(piece))
        return crc

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def combine(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32 of two texts one after the other, from theirs."""
    return _multiply(_power(second_bytes), first) ^ second


@lru_cache(256)
def _power(count: int) -> int:
    """Return x^(8 count): multiplying by it appends so many zero bytes."""
    product, factor = _ONE, _ONE >> 8
    while count:
        if count & 1:
            product = _multiply(product, factor)
        factor, count = _multiply(factor, factor), count >> 1
    return product


def _multiply(first: int, second: int) -> int:
    """Multiply two polynomials modulo CRC-32's."""
    product, mask = 0, _ONE
    while mask:
        if first & mask:
            product ^= second
        second = second >> 1 ^ (_POLYNOMIAL if second & 1 else 0)
        mask >>= 1
    return product
