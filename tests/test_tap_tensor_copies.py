"""Tensors on their way into the ring: every type and shape, samples of large ones, sums on a device."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from seams import (
    DTYPES,
    Fetcher,
    Ring,
    RingReader,
    Sender,
    Statistics,
    all_finite,
    offer,
    reduce,
    subsample,
    summed_rows,
)
from seams import statistics_of as summary_of_array
from torch import Tensor

from torcheer.samples import Delivery

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
EVERY = [getattr(torch, row.name) for row in DTYPES.values() if row.numbers == 1]
PACKED = [getattr(torch, row.name) for row in DTYPES.values() if row.numbers > 1]


class Way:
    """A ring, and what comes out of it."""

    def __init__(self, size_bytes: int = 1 << 20) -> None:
        self.ring = Ring(size_bytes)
        self.reader = RingReader(os.dup(self.ring.fd))
        self.said: list[str] = []

    def offer(self, tensor: Tensor, **more: Any) -> Delivery | None:
        given = {"layer": "fc", "variable": "output", "step": 3, "report": self.said.append, **more}
        return self.reader.take() if offer(self.ring, tensor, **given) else None


@pytest.fixture
def way() -> Iterator[Way]:
    found = Way()
    yield found
    found.reader.close()
    found.ring.close()


def made(kind: torch.dtype, *shape: int) -> Tensor:
    source = torch.Generator().manual_seed(0)
    if kind.is_complex:
        return torch.randn(shape, dtype=kind, generator=source)
    return (torch.rand(shape, generator=source) * 4).to(kind)


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("kind", EVERY, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7,), (2, 3, 4)], ids=str)
def test_every_type_and_shape_arrives_bit_for_bit(way: Way, kind: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = made(kind, *shape)
    sent = way.offer(tensor)
    assert sent is not None
    assert sent.sample.array.shape == shape
    assert sent.sample.array.tobytes() == (bits(tensor) if tensor.numel() else b"")
    assert (sent.key, sent.sample.step, sent.stride, sent.whole) == (("fc", "output"), 3, 1, ())


@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_of_a_large_tensor_of_every_type_some_numbers_arrive(way: Way, kind: torch.dtype) -> None:
    tensor = made(kind, 40, 50)
    sent = way.offer(tensor, limit_bytes=tensor.nbytes // 7)
    assert sent is not None and sent.stride > 1 and not way.said
    some = tensor.reshape(-1).view(torch.uint8).reshape(2000, -1)[:: sent.stride]
    assert sent.sample.array.tobytes() == some.numpy().tobytes()


@pytest.mark.parametrize("kind", PACKED, ids=str)
def test_of_a_packed_type_the_numbers_arrive(way: Way, kind: torch.dtype) -> None:
    bytes = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    every, some = way.offer(bytes.view(kind)), way.offer(bytes.view(kind), limit_bytes=40)
    assert every is not None and some is not None and not way.said
    assert every.sample.array.shape == (16, 32) and some.stride == 7
    assert np.array_equal(some.sample.array, every.sample.array.reshape(-1, 2)[::7].reshape(-1))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.t(),
        lambda t: t[::2, 1:],
        lambda t: t[:1].expand(5, 6),
        lambda t: t.flip(0),
        lambda t: t.reshape(1, 2, 3, 6).to(memory_format=torch.channels_last),
        lambda t: t.requires_grad_(),
        lambda t: torch.nn.Parameter(t),
        lambda t: torch.complex(t, t).conj(),
        lambda t: torch.complex(t, t).conj().imag,  # negated, lazily
        lambda t: torch.diagonal(t),
        lambda t: t.as_strided((3, 3), (1, 1)),  # overlapping
    ],
)
def test_how_a_tensor_lies_in_memory_does_not_matter(way: Way, change: Any) -> None:
    tensor = change(torch.arange(36.0).reshape(6, 6))
    sent = way.offer(tensor)
    assert sent is not None
    assert np.array_equal(sent.sample.array, tensor.detach().resolve_conj().resolve_neg().numpy())


def test_a_subclass_is_sent_as_what_it_holds(way: Way) -> None:
    class Mine(Tensor):
        pass

    sent = way.offer(torch.arange(3.0).as_subclass(Mine))
    assert sent is not None and sent.sample.array.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
        (lambda: torch.eye(3).to_sparse_csr(), "layout torch.sparse_csr"),
        (lambda: torch.empty(3, device="meta"), "on meta"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "cannot be kept|is not supported"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
            "NestedTensor is not supported: only its",
        ),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "type torch.qint8"),
        (lambda: torch.nn.UninitializedParameter(), "no shape before"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_sent_is_refused_with_a_reason(way: Way, make: Any, why: str) -> None:
    assert way.offer(make()) is None
    assert len(way.said) == 1
    assert re.search(why, way.said[0]), way.said


def test_a_full_ring_is_not_waited_for(way: Way) -> None:
    tensor = torch.zeros(30_000)
    answers = [offer(way.ring, tensor, layer="a", variable="b", step=0, limit_bytes=1 << 17) for _ in range(12)]
    assert answers[0] and not answers[-1]
    assert sum(answers) + way.ring.dropped["a", "b"] == 12


# -- large ones


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool, torch.complex64], ids=str
)
@pytest.mark.parametrize("change", [lambda t: t, lambda t: t.transpose(0, 2), lambda t: t.flip(1)[:, ::2]])
def test_of_a_large_tensor_every_nth_number_is_sent(way: Way, kind: torch.dtype, change: Any) -> None:
    tensor = change(made(kind, 20, 30, 64))
    sent = way.offer(tensor, limit_bytes=10_000)
    assert sent is not None
    assert sent.stride > 1 and sent.whole == tuple(tensor.shape) and sent.finite is True
    expected = tensor.contiguous().view(-1)[:: sent.stride]
    assert sent.sample.array.tobytes() == bits(expected)
    assert 2_500 <= sent.sample.array.nbytes <= 10_000


def test_a_sample_meets_every_column(way: Way) -> None:
    sent = way.offer(torch.arange(64.0).expand(4096, 64).contiguous(), limit_bytes=1 << 16)
    assert sent is not None
    assert len(np.unique(sent.sample.array)) == 64


def test_a_huge_tensor_that_takes_no_memory_stays_without(way: Way) -> None:
    sent = way.offer(torch.ones(1, 1).expand(1 << 20, 1 << 14), limit_bytes=4096)  # 64 GiB, if anyone made it
    assert sent is not None
    assert sent.sample.array.size <= 1024 and sent.whole == (1 << 20, 1 << 14)


@pytest.mark.parametrize("kind", [*FLOATS, torch.complex64], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_noticed_though_it_is_not_sent(way: Way, kind: torch.dtype, bad: float) -> None:
    tensor = made(kind, 100, 100)
    tensor[0, 1] = bad
    sent = way.offer(tensor, limit_bytes=1000)
    assert sent is not None
    assert np.isfinite(np.asarray(sent.sample.array).astype(np.complex128)).all()
    assert sent.finite is False


def test_numbers_that_add_up_to_more_than_a_float_holds_are_finite() -> None:
    assert all_finite(torch.full((1000,), 3e38))
    assert all_finite(torch.full((1000,), 65_000.0, dtype=torch.float16))
    assert all_finite(torch.full((1000,), 1e308, dtype=torch.float64))
    assert not all_finite(torch.tensor([math.inf, -math.inf]))
    assert all_finite(torch.tensor([2**62] * 4))


def test_a_part_keeps_to_its_limit_for_any_shape() -> None:
    for shape in [(1000,), (31, 33), (7, 11, 13), (1024, 4), (4, 1024)]:
        for limit in (4, 100, 1000, 3999):
            some, stride = subsample(torch.zeros(shape), limit)
            assert some.numel() * 4 <= limit
            assert some.numel() == -(-math.prod(shape) // stride)


# -- differences


@pytest.mark.parametrize("kind", [*FLOATS, torch.complex64, torch.float8_e5m2], ids=str)
def test_a_difference_is_taken_on_the_way(way: Way, kind: torch.dtype) -> None:
    before, after = made(kind, 4, 4), made(kind, 4, 4).to(torch.complex64 if kind.is_complex else torch.float32)
    after = (after + 1).to(kind)
    sent = way.offer(after, minus=before)
    assert sent is not None
    if kind is torch.float8_e5m2:
        expected = (after.float() - before.float()).to(kind)
    else:
        expected = after - before
    assert sent.sample.array.tobytes() == bits(expected)


def test_what_is_kept_for_a_difference_is_what_will_be_sent(way: Way) -> None:
    sender = Sender(way.ring, limit_bytes=1000, share_bytes=way.ring.share_bytes, report=way.said.append)
    weight = torch.nn.Parameter(torch.rand(100, 50))
    before = weight.detach().clone()
    kept = sender.snapshot(weight, "fc.weight", "update")
    with torch.no_grad():
        weight.add_(0.5)
    sender.send(weight, "fc.weight", "update", 1, kept)
    sent = way.reader.take()
    assert sent is not None and kept is not None and kept.numel() <= 250
    assert np.array_equal(sent.sample.array, (weight.detach() - before).view(-1)[:: sent.stride].numpy())


# -- keys and metrics


def test_keys_that_are_wanted_whole_are_sent_whole(way: Way) -> None:
    sender = Sender(way.ring, limit_bytes=400, share_bytes=100_000, whole=["a.*/output"], report=way.said.append)
    for layer, variable in (("a.1", "output"), ("a.1", "grad"), ("b", "output")):
        sender.send(torch.zeros(1000), layer, variable, 0)
    sent = [way.reader.take() for _ in range(3)]
    assert [one.stride > 1 for one in sent if one is not None] == [False, True, True]


def test_of_a_weight_and_its_update_the_same_numbers_are_sent(way: Way) -> None:
    sender = Sender(way.ring, limit_bytes=400, share_bytes=100_000, whole=["a/weight"], report=way.said.append)
    kept = sender.snapshot(torch.ones(1000), "a", "update")
    sender.send(torch.ones(1000), "a", "weight", 0)
    sender.send(torch.ones(1000), "a", "update", 0, kept)
    assert [one.stride for one in iter(way.reader.take, None)] == [1, 1]  # or their norms could not be compared


@pytest.mark.parametrize(
    "value", [1, 2.5, True, np.float32(3), torch.tensor(4.0), torch.tensor([5]), torch.tensor(6.0, requires_grad=True)]
)
def test_a_metric_may_be_any_kind_of_number(way: Way, value: Any) -> None:
    sender = Sender(way.ring, limit_bytes=400, share_bytes=100_000, report=way.said.append)
    sender.send_metric("loss", value, 7)
    sent = way.reader.take()
    assert sent is not None and way.said == []
    assert (sent.key, sent.sample.step, float(sent.sample.array.reshape(()))) == (
        ("loss", "metric"),
        7,
        float(torch.as_tensor(value).detach()),
    )


@pytest.mark.parametrize("value", ["low", None, torch.zeros(2), [1.0]])
def test_a_metric_that_is_no_number_is_reported(way: Way, value: Any) -> None:
    Sender(way.ring, limit_bytes=400, share_bytes=100_000, report=way.said.append).send_metric("loss", value, 7)
    assert len(way.said) == 1 and "'loss'" in way.said[0]
    assert way.reader.take() is None


# -- sums on a device, here on the CPU


CASES = {
    "plain": torch.randn(1000, generator=torch.Generator().manual_seed(0)),
    "far from zero": 1e4 + torch.rand(1000, generator=torch.Generator().manual_seed(0)),
    "with nan and inf": torch.tensor([1.0, 2, math.nan, math.inf, -math.inf, 0, -3]),
    "all above zero, with nan": torch.tensor([1.0, 2, math.nan]),
    "nothing finite": torch.tensor([math.nan, math.inf]),
    "one": torch.tensor(3.0),
    "none": torch.zeros(0),
    "zeros": torch.zeros(5),
    "half": torch.full((2000,), 60_000.0, dtype=torch.float16),
    "brain": torch.rand(100).bfloat16(),
    "whole": torch.arange(-5, 50),
    "bool": torch.tensor([True, False, True]),
    "complex": torch.tensor([3 + 4j, 0j]),
    "eight bits": torch.tensor([1.0, 2.0, 0.0]).to(torch.float8_e5m2),
}


def reduced(tensor: Tensor) -> Statistics:
    """What the training process is sent of a value."""
    return Statistics.of_row(summed_rows(reduce(tensor)[None].cpu(), [tensor.numel()])[0].tolist())


def check_summary(found: Any, tensor: Tensor) -> None:
    numbers = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float8_e5m2) else tensor
    expected = summary_of_array(numbers.cpu().numpy())
    for name in ("count", "zeros", "nans", "infs"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("minimum", "maximum", "mean", "std", "norm"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-5, abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize("case", CASES)
def test_a_sum_on_the_device_is_that_of_the_child(case: str) -> None:
    check_summary(reduced(CASES[case]), CASES[case])


def test_of_a_large_weight_a_sample_is_summed_up_and_all_of_it_looked_at(way: Way) -> None:
    fetcher = Fetcher(way.ring)
    weight, changed = torch.ones(100, 100), torch.full((100, 100), 1.5)
    weight[0, 1] = math.nan
    kept = subsample(torch.ones(100, 100), 4000)[0].clone()
    fetcher.fetch_statistics(weight, limit_bytes=4000, layer="a", variable="weight", step=4)
    fetcher.fetch_statistics(changed, kept, limit_bytes=4000, layer="a", variable="update", step=4)
    fetcher.harvest()
    first, second = way.reader.take(), way.reader.take()
    assert first is not None and second is not None and first.summary is not None and second.summary is not None
    assert (first.whole, first.finite, first.summary.nans) == ((100, 100), False, 0)
    assert first.stride == second.stride == first.summary.stride > 1
    assert second.summary.norm / first.summary.norm == pytest.approx(0.5)


def test_metrics_on_a_device_are_fetched_together(way: Way) -> None:
    fetcher = Fetcher(way.ring)
    for step in range(3):
        fetcher.fetch_number(torch.tensor(step + 0.5), layer="loss", variable="metric", step=step)
    fetcher.harvest()
    found = [way.reader.take() for _ in range(3)]
    assert [float(one.sample.array) for one in found if one is not None] == [0.5, 1.5, 2.5]


def test_sums_are_sent_together_with_the_shape_they_are_of(way: Way) -> None:
    fetcher = Fetcher(way.ring)
    for layer in ("a", "b"):
        fetcher.fetch_statistics(torch.ones(2, 3), layer=layer, variable="grad", step=4)
    assert fetcher.busy
    fetcher.harvest()
    assert not fetcher.busy
    for layer in ("a", "b"):
        sent = way.reader.take()
        assert sent is not None and sent.summary is not None
        assert (sent.key, sent.whole, sent.summary.norm) == ((layer, "grad"), (2, 3), pytest.approx(6**0.5))
        assert sent.sample.array.tolist() == [[1, 1, 1], [1, 1, 1]]  # so few that all of them came along


@pytest.mark.parametrize("case", CASES)
def test_many_values_are_summed_up_together_as_each_alone(way: Way, case: str) -> None:
    fetcher = Fetcher(way.ring)
    for step in range(70):  # more than a sheet has rows
        fetcher.fetch_statistics(CASES[case] if step % 7 == 0 else torch.ones(3), layer="a", variable="grad", step=step)
    fetcher.harvest()
    found = {sent.sample.step: sent.summary for sent in iter(way.reader.take, None)}
    assert set(found) == set(range(70)) and found[69] is not None
    assert found[69].norm == pytest.approx(3**0.5) and found[69].nans == found[69].zeros == 0
    for step in (0, 63):
        summary = found[step]
        assert summary is not None
        check_summary(summary, CASES[case])


# -- on a GPU

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@on_gpu
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_sums_up_as_the_child_does(case: str) -> None:
    check_summary(reduced(CASES[case].cuda()), CASES[case])


@on_gpu
def test_values_on_a_gpu_are_sent_without_waiting(way: Way) -> None:
    sender = Sender(way.ring, limit_bytes=400, share_bytes=100_000, whole=["whole/*"], report=way.said.append)
    tensor = torch.rand(1000, device="cuda")
    before = tensor.cpu()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        sender.send(tensor, "sum", "output", 0)
        sender.send(tensor, "whole", "output", 0)
        sender.send_metric("loss", tensor.sum(), 0)
        tensor.zero_()  # what was sent is a snapshot
        sender.harvest()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    sender.harvest(wait=True)
    found = {sent.sample.layer: sent for sent in iter(way.reader.take, None)}
    assert way.said == []
    check_summary(found["sum"].summary, before)
    assert np.array_equal(found["whole"].sample.array, before.numpy())
    assert found["whole"].device == "cuda:0"
    assert float(found["loss"].sample.array) == pytest.approx(float(before.sum()), rel=1e-5)
