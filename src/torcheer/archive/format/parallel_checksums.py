"""CRC-32 by other threads while the same bytes are written, for systems without isal: pieces, combined."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from torcheer.encoding import crc32

_PIECE_BYTES = 8 << 20  # smaller ones hand the interpreter's lock to and fro, which a model that runs meanwhile pays
_MAX_THREADS = 8
_POLYNOMIAL = 0xEDB88320  # of CRC-32, its bits reversed, as all numbers here
_ONE = 1 << 31  # the polynomial 1


class ParallelChecksum:
    """CRC-32s that threads compute; `close` ends them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), "torcheer-checksum")

    def start(self, data: Any, first: int = 0) -> Callable[[], int]:
        """Begin the CRC-32 of bytes, continued from `first`; the function that is returned waits for it."""
        view = memoryview(data)
        pieces = [view[place : place + _PIECE_BYTES] for place in range(0, len(view), _PIECE_BYTES)]
        parts = [self._threads.submit(crc32, piece) for piece in pieces]

        def wait() -> int:
            crc = first
            for piece, part in zip(pieces, parts):
                crc = combine(crc, part.result(), len(piece))
            return crc

        return wait

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
