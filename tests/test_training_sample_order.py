"""The order of samples: once each, a function of seed and epoch, without memory where there are very many."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import BLOCK, Feed, Scattered, sample_order
from seams import sample_order_module as module
from training_cases import results, session

from torcheer.training.session_parts import Loader

BILLION = 10**9


class Numbers(torch.utils.data.Dataset[Any]):
    """A billion samples that take no memory."""

    def __len__(self) -> int:
        return BILLION

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < BILLION
        return index


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 64, 100, 4097, 2 * BLOCK + 11])
def test_a_scattered_order_has_every_sample_once(size: int) -> None:
    order = Scattered(size, seed=3, epoch=1)
    assert len(order) == size and np.array_equal(np.sort(order[:]), np.arange(size))


def test_a_part_of_a_scattered_order_is_that_of_the_whole_across_blocks() -> None:
    order = Scattered(3 * BLOCK - 7, seed=3, epoch=1)
    whole = order[:]
    for start, stop in [(0, 5), (BLOCK - 2, BLOCK + 3), (5, 2 * BLOCK + 1), (3 * BLOCK - 9, 4 * BLOCK), (9, 9), (9, 4)]:
        assert np.array_equal(order[start:stop], whole[start:stop])


def test_a_scattered_order_depends_on_seed_and_epoch_alone_and_looks_random() -> None:
    first = Scattered(1 << 18, seed=3, epoch=1)[:]
    assert np.array_equal(first, Scattered(1 << 18, seed=3, epoch=1)[:])
    for other in (Scattered(1 << 18, seed=3, epoch=2)[:], Scattered(1 << 18, seed=4, epoch=1)[:]):
        assert np.sum(first == other) < 20 and abs(np.corrcoef(first, other)[0, 1]) < 0.01
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.01
    counts, _, _ = np.histogram2d(np.arange(first.size), first, bins=32)
    expected = first.size / counts.size
    chi_squared = ((counts - expected) ** 2 / expected).sum() / 31**2  # 1 for random numbers, to within 0.05
    assert 0.85 < chi_squared < 1.15


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_of_a_billion_samples_take_no_memory(shuffle: bool) -> None:
    feed = Feed(Loader(Numbers(), 256, shuffle=shuffle), 1)
    tracemalloc.start()
    first = next(feed.epoch(0))
    late = list(itertools.islice(feed.epoch(3, start=3_000_000), 3))
    assert feed.indices(3, 3_000_001) == late[1].tolist() and feed.indices(3, len(feed)) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * BLOCK  # an index is 8 bytes, and so many are computed together
    assert len(feed) == -(-BILLION // 256) and first.tolist() == feed.indices(0, 0)
    assert (first.tolist() == list(range(256))) is not shuffle


def test_below_the_limit_the_order_is_the_one_that_runs_were_begun_with() -> None:
    assert np.array_equal(sample_order(9, 4, 2, shuffle=True)[:], np.random.default_rng((4, 2)).permutation(9))


def test_a_run_in_a_scattered_order_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 20)
    for folder, stops in (("whole", ()), ("parts", (2, 5))):
        for stop in stops:
            events = session("plain", tmp_path / folder).run()
            for event in events:
                if getattr(event, "step", 0) == stop:
                    break
            events.close()
        for _ in session("plain", tmp_path / folder).run():
            pass
    assert results(tmp_path / "whole") == results(tmp_path / "parts")
