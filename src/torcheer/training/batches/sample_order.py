"""The order of samples in an epoch: indices by position, a function of the seed and the epoch alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

LARGE = 1 << 26  # samples: a stored permutation of more takes over 0.5 GB on every rank, and seconds to draw
BLOCK = 1 << 16  # positions that are computed together
ROUNDS = 8

Indices = np.ndarray[Any, Any]


class SampleOrder(Protocol):
    """Indices of samples by position; a slice of it is an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, positions: slice, /) -> Indices: ...


def sample_order(size: int, seed: int, epoch: int, *, shuffle: bool) -> SampleOrder:
    """Return the order of an epoch. It takes no memory where it is not shuffled, or `LARGE`."""
    if not shuffle:
        return InOrder(size)
    if size >= LARGE:
        return Scattered(size, seed, epoch)
    return np.random.default_rng((seed, epoch)).permutation(size)


@dataclass(frozen=True)
class InOrder:
    """The indices as they are."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, positions: slice, /) -> Indices:
        return np.arange(*positions.indices(self.size))


@dataclass
class Scattered:
    """A permutation that is computed on demand: positions are enciphered, as in format-preserving encryption.

    The high and the low bits of a position are XORed in turn with a hash of each other: a Feistel network, which is one
    to one whatever the hash. It permutes a power of two; a result that is not an index is enciphered again.
    """

    size: int
    seed: int
    epoch: int
    _block: tuple[int, Indices] = field(default=(-1, np.empty(0, np.int64)), init=False, repr=False)  # the last one

    def __post_init__(self) -> None:
        bits = max(2, (self.size - 1).bit_length())
        self._low_bits = np.uint64(bits // 2)
        self._low = np.uint64((1 << bits // 2) - 1)
        self._high = np.uint64((1 << bits - bits // 2) - 1)
        self._keys = np.random.SeedSequence((self.seed, self.epoch)).generate_state(ROUNDS, np.uint64)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, positions: slice, /) -> Indices:
        start, stop, _ = positions.indices(self.size)
        first, last = start // BLOCK, max(start, stop - 1) // BLOCK
        blocks = np.concatenate([self._indices(number) for number in range(first, last + 1)])
        return blocks[start - first * BLOCK : max(start, stop) - first * BLOCK]

    def _indices(self, number: int) -> Indices:
        if self._block[0] != number:
            positions = np.arange(number * BLOCK, min((number + 1) * BLOCK, self.size), dtype=np.uint64)
            indices = self._encipher(positions)
            while (outside := np.flatnonzero(indices >= np.uint64(self.size))).size:
                indices[outside] = self._encipher(indices[outside])
            self._block = number, indices.astype(np.int64)
        return self._block[1]

    def _encipher(self, numbers: Indices) -> Indices:
        low, high = numbers & self._low, numbers >> self._low_bits
        for round_number, key in enumerate(self._keys):
            if round_number % 2:
                high = high ^ (_hash(low, key) & self._high)
            else:
                low = low ^ (_hash(high, key) & self._low)
        return (high << self._low_bits) | low


def _hash(numbers: Indices, key: np.uint64) -> Indices:
    """Mix numbers with a key; every bit of the result depends on all of theirs (the finalizer of SplitMix64)."""
    mixed = numbers + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
