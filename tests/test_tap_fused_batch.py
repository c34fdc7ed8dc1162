"""Batches: many values summed up with few launches, sent as one record, and seen as if each had come alone."""

from __future__ import annotations

import ctypes
import math
import os
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from models import small
from seams import MemoryCopy, Ring, RingReader, fused_kernels, reduce, summed_rows
from torch import Tensor, nn
from watch_checks import Probed, batch

from torcheer.samples import PARTS, SUMS, BatchRow, Delivery, SampleBatch

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def numbers_at(address: int, count: int, stride: int, kind: torch.dtype) -> Tensor:
    """Every n-th number in memory."""
    size = ((count - 1) * stride + 1) * kind.itemsize
    memory = bytearray((ctypes.c_char * size).from_address(address))
    return torch.frombuffer(memory, dtype=kind)[::stride]


def sum_rows_on_the_cpu(table: Tensor, sums: Tensor, samples: Tensor, checked: int) -> None:
    """What the kernels do, by torch's own operations."""
    kind = samples.dtype
    for entry in table.view(-1, fused_kernels.COLUMNS).tolist():
        address, minus, count, stride, sampled, kept, place, whole, row = entry
        numbers = numbers_at(address, count, stride, kind)
        if minus:
            numbers = numbers - numbers_at(minus, count, 1, kind)
        first = PARTS * (row % 2) // 2  # in any of the parts
        sums[row, :, 2], sums[row, :, 3] = math.inf, -math.inf
        sums[row, first, :8] = torch.from_numpy(summed_rows(reduce(numbers)[None], [count])[0])
        sums[row, 0, 8] = float(whole and not torch.isfinite(numbers_at(address, whole, 1, kind)).all())
        samples[place : place + kept] = numbers[::sampled]


@pytest.fixture
def batches_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Values on the CPU go the way of a GPU's; the counts of rows of each launch."""
    launched: list[int] = []

    def sum_rows(table: Tensor, *others: Any) -> None:
        launched.append(table.numel() // fused_kernels.COLUMNS)
        sum_rows_on_the_cpu(table, *others)

    monkeypatch.setattr(fused_kernels, "can_fuse", lambda device, kind: kind in fused_kernels.KINDS)
    monkeypatch.setattr(fused_kernels, "sum_rows", sum_rows)
    yield launched


def steps_of(model: nn.Module, steps: int, *, device: str = "cpu", **settings: Any) -> list[Delivery]:
    """What probes send of some training steps of a model whose values are reduced where they are."""
    model, optimizer = model.to(device), torch.optim.SGD(model.parameters(), 0.1)
    with Probed(model, **settings) as probed:
        probed.sender.limits.devices = frozenset({device})
        for step in range(steps):
            x, y = (each.to(device) for each in batch(step))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert probed.problems == []
    return [sent for sent in probed.taken() if sent.sample.variable != "metric"]


def assert_equal(mine: list[Delivery], theirs: list[Delivery]) -> None:
    assert [(sent.key, sent.sample.step, sent.count) for sent in mine] == [
        (sent.key, sent.sample.step, sent.count) for sent in theirs
    ]
    for sent, other in zip(mine, theirs):
        assert np.array_equal(sent.sample.array, other.sample.array, equal_nan=True), sent.key
        same = {"sample": other.sample, "time_secs": other.time_secs, "summary": other.summary}
        assert replace(sent, **same) == other
        assert sent.time_secs > 0 and sent.summary is not None and other.summary is not None
        for name in ("count", "zeros", "nans", "infs", "minimum", "maximum", "stride"):
            assert getattr(sent.summary, name) == getattr(other.summary, name), (sent.key, name)
        for name in ("mean", "std", "norm"):
            mine_, other_ = getattr(sent.summary, name), getattr(other.summary, name)
            assert mine_ == pytest.approx(other_, rel=1e-5, abs=1e-7, nan_ok=True), (sent.key, name)


def wide() -> nn.Module:
    """Layers with more numbers than are summed up, or sampled; a ReLU that overwrites its input."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 900), nn.ReLU(inplace=True), nn.Linear(900, 300), nn.Tanh(), nn.Linear(300, 3)
    )  # fmt: skip


@pytest.mark.parametrize("make", [small, wide])
@pytest.mark.parametrize("what", [("output", "grad", "weight", "weight_grad", "update"), ("update",)])
def test_what_came_as_batches_is_what_came_singly(
    make: Any, what: Any, batches_on_the_cpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    fused = steps_of(make(), 5, what=what)
    assert max(batches_on_the_cpu) > 1
    monkeypatch.setattr(fused_kernels, "can_fuse", lambda device, kind: False)
    torch.manual_seed(3)
    assert_equal(fused, steps_of(make(), 5, what=what))


def test_an_input_is_sent_where_it_is_not_finite(batches_on_the_cpu: list[int]) -> None:
    model = wide()
    with Probed(model, what=("output",)) as probed:
        probed.sender.limits.devices = frozenset({"cpu"})
        for step in range(5):
            x, _ = batch(step)
            x[0, 0, 0, 0] = math.nan if step in (1, 3) else 0.0  # at first alone, then in a batch
            model(x)
    inputs = [sent for sent in probed.taken() if sent.sample.variable == "input"]
    assert [(sent.sample.step, sent.summary.nans if sent.summary else 0) for sent in inputs] == [(1, 1), (3, 1)]


def make_batch(sizes: list[int]) -> SampleBatch:
    """A batch of rising numbers, every second of which is kept."""
    rows, moments, samples = [], array("d"), b""
    sums = np.zeros((len(sizes), PARTS, SUMS))
    for number, size in enumerate(sizes):
        values = np.arange(size, dtype=np.float32)
        rows.append(
            BatchRow.of(("layer", str(number)), type="float32", device="cuda:0", whole=[size], stride=1, numbers=size,
                        sampled=2, flags=["frozen"])
        )  # fmt: skip
        moments.extend((12.5, number, 7))
        sums[number, :, 2], sums[number, :, 3] = math.inf, -math.inf
        sums[number, number, :8] = size, 1, 0, size - 1, values.mean(), values.std(), 0, 0
        kept = values[::2].tobytes()
        samples += kept + bytes(-len(kept) % 16)
    parts = [np.frombuffer(moments.tobytes(), np.uint8), sums.reshape(-1), np.frombuffer(samples, np.uint8)]
    return SampleBatch(rows, "epoch:3", *(MemoryCopy(part, part.ctypes.data, part.nbytes) for part in parts))


def taken(ring: Ring) -> list[Delivery]:
    reader = RingReader(os.dup(ring.fd))
    sent = list(iter(reader.take, None))
    reader.close()
    return sent


def test_a_batch_arrives_as_its_values_singly() -> None:
    ring, others = Ring(1 << 20), Ring(1 << 20, most_records=10)  # the second counts single values
    sizes = [1, 5, 300]
    assert ring.offer_batch(make_batch(sizes)) and (ring.offered, ring.waiting) == (3, 3)
    assert not others.offer_batch(make_batch(sizes)) and others.offered == 0
    for offer in make_batch(sizes).offers():
        assert others.offer(*offer)
    together, singly = taken(ring), taken(others)
    for sent, other, size in zip(together, singly, sizes, strict=True):
        assert np.array_equal(sent.sample.array, np.arange(0, size, 2)) and sent.summary == other.summary
        assert replace(sent, sample=other.sample) == other
        assert (sent.message, sent.count, sent.frozen, sent.stride) == ("epoch:3", int(sent.key[1]), True, 2)
        assert sent.summary is not None and sent.summary.mean == pytest.approx((size - 1) / 2)
    ring.close()
    others.close()


def test_what_a_step_leaves_is_sent_over_the_next_ones(batches_on_the_cpu: list[int]) -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(80)])
    with Probed(model, what=("output", "weight"), every=20) as probed:
        probed.sender.limits.devices = frozenset({"cpu"})
        sent = []
        for _ in range(30):
            model(torch.ones(64, 64))
            sent.append(len(probed.taken()))
    after = [later - earlier for earlier, later in pairwise(sent[20:])]
    assert sum(count > 0 for count in after) > 2 and sum(after) == 240 and not after[-1], after


@on_gpu
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_the_kernels_sum_up_as_torch_does(kind: torch.dtype, bad: float) -> None:
    torch.manual_seed(0)
    source = torch.randn(300_000).relu().to(kind)
    source[123_457], source[7 * 13] = bad, bad  # the second is one of those that are summed up
    minus = torch.randn(40_000).to(kind)
    entries = [
        (source, None, 40_000, 7, 10, 4000, 0, 300_000, 0), (source, minus, 40_000, 7, 11, 3637, 4000, 0, 2),
        (minus, None, 40_000, 1, 1, 40_000, 8000, 0, 1),
    ]  # fmt: skip
    results = []
    for device, sum_rows in (("cpu", sum_rows_on_the_cpu), ("cuda", fused_kernels.sum_rows)):
        sums = torch.zeros(3, PARTS, SUMS, dtype=torch.float64, device=device)
        samples = torch.zeros(48_000, device=device).to(kind)
        moved = {id(each): each.to(device) for each in (source, minus)}
        flat = [
            number
            for first, second, *others in entries
            for number in (moved[id(first)].data_ptr(), 0 if second is None else moved[id(second)].data_ptr(), *others)
        ]
        sum_rows(fused_kernels.table_on(torch.device(device), flat), sums, samples, 300_000)
        results.append((sums.cpu(), samples.cpu()))
    (expected, kept), (found, copied) = results
    assert torch.equal(copied.nan_to_num(), kept.nan_to_num())
    for table in (expected, found):
        table[:, 0, :4], table[:, 0, 6:] = table[:, :, :4].sum(1), table[:, :, 6:].sum(1)
        table[:, 0, 4], table[:, 0, 5] = table[:, :, 4].amin(1), table[:, :, 5].amax(1)
    assert torch.allclose(found[:, 0], expected[:, 0], rtol=1e-6)


@on_gpu
@pytest.mark.parametrize("make", [small, wide])
def test_a_gpu_s_batches_are_what_torch_s_operations_find(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    what = ("output", "grad", "weight", "weight_grad", "update")
    assert fused_kernels.can_fuse(torch.device("cuda:0"), torch.float32)
    torch.manual_seed(3)
    fused = steps_of(make(), 5, device="cuda", what=what)
    monkeypatch.setattr(fused_kernels, "can_fuse", lambda device, kind: False)
    torch.manual_seed(3)
    assert_equal(fused, steps_of(make(), 5, device="cuda", what=what))


class Overwriting(nn.Module):
    """Each linear layer's output is overwritten by the ReLU behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu_()
        return x


def test_what_is_overwritten_waits_as_a_copy_and_is_sent_as_it_was(batches_on_the_cpu: list[int]) -> None:
    model = Overwriting()
    with Probed(model, layers="layers.*", what=("output",)) as probed:
        probed.sender.limits.devices = frozenset({"cpu"})
        for step in range(4):
            batches_on_the_cpu.clear()
            x = torch.randn(8, 64, generator=torch.Generator().manual_seed(step))
            model(x)
    assert max(batches_on_the_cpu) >= 6  # in the last step all of them with one launch
    sent = {(one.key[0], one.sample.step): one.sample.array for one in probed.taken() if one.key[1] == "output"}
    with torch.no_grad():
        for layer in range(6):
            linear = model.layers[layer](x)
            assert np.array_equal(sent[f"layers.{layer}", 3].reshape(-1), linear.reshape(-1).numpy())
            x = linear.relu()


def test_a_layer_that_moves_off_the_device_is_sent_from_the_host(batches_on_the_cpu: list[int]) -> None:
    model = nn.Linear(64, 64)
    with Probed(model, what=("output",)) as probed:
        probed.sender.limits.devices = frozenset({"cpu"})
        for step in range(6):
            if step == 4:
                probed.sender.harvest(wait=True)
                probed.sender.limits.devices = frozenset()
            model(torch.full((4, 64), float(step)))
    outputs = [one for one in probed.taken() if one.key[1] == "output"]
    assert [one.sample.step for one in outputs] == list(range(6))
    assert [one.summary is None for one in outputs] == [False] * 4 + [True] * 2
