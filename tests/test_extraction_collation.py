"""Samples made a batch: what torch makes of them, with fewer threads where a GPU waits for it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from seams import Batches, Collate, _few_threads
from torch import Tensor
from torch.utils.data import default_collate

LARGE = (3, 300, 300)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, (list, tuple)):
        return type(second) is type(first) and all(map(same, first, second)) and len(first) == len(second)
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    return bool(first == second)


def image(number: int, kind: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(LARGE, generator=torch.Generator().manual_seed(number)).mul(50).to(kind)


@pytest.mark.parametrize(
    "sample",
    [
        image,
        lambda number: image(number, torch.uint8),
        lambda number: image(number, torch.bfloat16),
        lambda number: image(number).transpose(0, 2),
        lambda number: torch.tensor([number]),
        lambda number: (image(number), number),
        lambda number: (image(number), (image(number), "text")),
        lambda number: [image(number), number],
        lambda number: {"image": image(number), "label": number},
        lambda number: number,
    ],
)
def test_a_batch_for_a_gpu_is_what_torch_makes(sample: Any) -> None:
    items = [sample(number) for number in range(5)]
    assert same(Collate(for_gpu=True)(items), default_collate(items))


def test_large_samples_for_a_gpu_are_not_stacked_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("torch.stack waits for its threads after each sample")

    monkeypatch.setattr(torch, "stack", refuse)
    assert Collate(for_gpu=True)([(image(0), 1), (image(1), 2)])[0].shape == (2, *LARGE)


def test_samples_of_different_shapes_are_told_as_before() -> None:
    with pytest.raises(TypeError, match="cannot be made a batch"):
        Collate(for_gpu=True)([image(0), image(1)[:2]])


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_on_a_gpu_leaves_processors_to_the_writers(device: str) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(64)
        with _few_threads(torch.device(device)):
            inside = torch.get_num_threads()
        assert inside == (64 if device == "cpu" else max(1, (os.cpu_count() or 1) // 4))
        assert torch.get_num_threads() == 64
    finally:
        torch.set_num_threads(before)


def test_the_first_batch_is_loaded_once() -> None:
    loaded: list[int] = []

    class Counted:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Tensor:
            loaded.append(index)
            return torch.tensor([index])

    batches = Batches(Counted(), 2, None)
    batches.loaded = first = batches.first()
    assert [batch.number for batch in batches.select(lambda number: True)] == [0, 1, 2]
    assert loaded == [0, 1, 2, 3, 4, 5] and first.ids == [0, 1]
