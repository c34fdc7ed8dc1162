"""`patgen`, `rand`, `erand`: random patterns in tensors, from one seeded generator; torch's own seed is apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from torcheer.errors import BadArgument
from torcheer_originals.etorch.met_differences import meet
from torcheer_originals.etorch.tables.etensors import Array, Tensor

_GENERATORS = [np.random.default_rng(1)]
_MOST_TRIES = 1000


def generator() -> np.random.Generator:
    """The generator that everything here draws from."""
    return _GENERATORS[0]


def Seed(seed: int) -> None:
    """Begin anew from a seed."""
    _GENERATORS[0] = np.random.default_rng(abs(int(seed)))
    meet("seed")


def Perm(count: int) -> list[int]:
    """The numbers below `count` in a random order."""
    return [int(number) for number in generator().permutation(count)]


def PermuteInts(numbers: list[Any]) -> None:
    """Put a list into a random order."""
    numbers[:] = [numbers[place] for place in Perm(len(numbers))]


def Float64() -> float:
    """A random number from 0 to 1."""
    return float(generator().random())


Float32 = Float64


def Intn(count: int) -> int:
    """A random whole number below `count`."""
    return int(generator().integers(count))


def PermutedBinary(tensor: Tensor, on: int, on_value: float, off_value: float) -> None:
    """Set `on` of a tensor's values to one number, all others to another."""
    _permute(tensor.array.reshape(1, -1), on, on_value, off_value)


def PermutedBinaryRows(tensor: Tensor, on: int, on_value: float, off_value: float) -> None:
    """Set `on` values of each row to one number, all others to another."""
    _permute(_rows(tensor), on, on_value, off_value)


def PermutedBinaryMinDiff(tensor: Tensor, on: int, on_value: float, off_value: float, least: int) -> None:
    """As `PermutedBinaryRows`, with at least so many values on in one row of any two and off in the other."""
    rows = _rows(tensor)
    for number, row in enumerate(rows):
        for _ in range(_MOST_TRIES):
            _permute(row[None], on, on_value, off_value)
            if all((row != before).sum() >= 2 * least for before in rows[:number]):
                break
        else:
            raise BadArgument(f"no {len(rows)} patterns of {on} in {row.size} differ by {least}: ask for fewer or less")


def FlipBits(tensor: Tensor, off: int, on: int, on_value: float, off_value: float) -> None:
    """Turn `off` values off that are on, and `on` values on that are off."""
    _flip(tensor.array.reshape(-1), off, on, on_value, off_value)


def FlipBitsRows(tensor: Tensor, off: int, on: int, on_value: float, off_value: float) -> None:
    """As `FlipBits`, in each row."""
    for row in _rows(tensor):
        _flip(row, off, on, on_value, off_value)


def _rows(tensor: Tensor) -> Array:
    rows: Array = tensor.array.reshape(len(tensor.array), -1)
    return rows


def _permute(rows: Array, on: int, on_value: float, off_value: float) -> None:
    for row in rows:
        row[...] = off_value
        row[Perm(row.size)[:on]] = on_value


def _flip(row: Array, off: int, on: int, on_value: float, off_value: float) -> None:
    ons, offs = np.flatnonzero(row == on_value), np.flatnonzero(row != on_value)
    row[generator().permutation(ons)[:off]] = off_value
    row[generator().permutation(offs)[:on]] = on_value
