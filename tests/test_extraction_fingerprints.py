"""Fingerprints: one bit makes another, the device and the layout do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from seams import fingerprint, fingerprints
from torch import Tensor

SIZES = [1, 7, 8, 4096, 32_768, 32_769, 100_003]


def random_bytes(count: int) -> Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", SIZES)
def test_one_bit_makes_another_number(count: int) -> None:
    data = random_bytes(count)
    numbers = {fingerprint([("x", data)])}
    for place in {0, count // 2, count - 1}:
        other = data.clone()
        other[place] ^= 1
        numbers.add(fingerprint([("x", other)]))
    assert len(numbers) == 1 + len({0, count // 2, count - 1})


@pytest.mark.parametrize("count", SIZES)
def test_numpy_and_torch_sum_alike(count: int) -> None:
    """What a GPU computes is what the CPU does: torch's sums, here on the CPU."""
    words = fingerprints._words(random_bytes(count))
    factors = fingerprints._Factors(torch.device("cpu"))
    by_numpy = fingerprints._sum_numpy(words.numpy().view(np.uint64))
    assert int(fingerprints._sum_torch(words, factors)) % 2**64 == by_numpy


def test_names_shapes_types_and_order_count_and_memory_layout_does_not() -> None:
    rows = torch.arange(12.0).reshape(3, 4)
    same = fingerprint([("x", rows)])
    assert fingerprint([("x", rows.t().contiguous().t())]) == same
    assert fingerprint([("x", torch.cat([torch.zeros(1), rows.flatten()])[1:].reshape(3, 4))]) == same
    others = [
        [("y", rows)], [("x", rows.reshape(4, 3))], [("x", rows.int())], [("x", rows.view(torch.int32))],
        [("x", rows.flip(0))], [("x", rows), ("x", rows)], [("x", 3)], [],
    ]  # fmt: skip
    assert len({same, *map(fingerprint, others)}) == 1 + len(others)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("count", SIZES)
def test_a_gpu_gives_the_same_number(count: int) -> None:
    assert fingerprint([("x", random_bytes(count).cuda())]) == fingerprint([("x", random_bytes(count))])
