"""The numbers of an array: exact where that is promised, of every type, in flat memory."""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from children import run_python
from hypothesis import given
from hypothesis import strategies as st
from seams import (
    BINS,
    EDGES,
    PERCENTILES,
    SAMPLE,
    SUBSAMPLE_SIZE,
    TYPES,
    Fetcher,
    Ring,
    RingReader,
    Rules,
    Statistics,
    even_stride,
    from_bytes,
    resolve_rules,
    row_bytes,
    statistics_of,
    subsample,
)
from torch import nn

from torcheer.records import Sample
from torcheer.samples import Delivery, summarise, summarise_together

RANDOM = np.random.default_rng(0)


def by_hand(array: Any) -> dict[str, float]:
    """The same numbers, as Python's exact sums give them."""
    numbers = np.abs(array) if np.iscomplexobj(array) else array
    every = [float(one) for one in numbers.reshape(-1)]
    finite = [one for one in every if math.isfinite(one)]
    mean = math.fsum(finite) / len(finite)
    return {
        "count": len(every),
        "minimum": min(finite),
        "maximum": max(finite),
        "mean": mean,
        "std": math.sqrt(math.fsum((one - mean) ** 2 for one in finite) / len(finite)),
        "norm": math.sqrt(math.fsum(one * one for one in finite)),
        "zeros": sum(one == 0 for one in every),
        "nans": sum(math.isnan(one) for one in every),
        "infs": sum(math.isinf(one) for one in every),
    }


def assert_agrees(found: Statistics, expected: dict[str, float], relative: float = 1e-10) -> None:
    for name, number in expected.items():
        scale = expected["norm"] if name in ("mean", "std") else abs(number)
        assert getattr(found, name) == pytest.approx(number, rel=relative, abs=relative * scale), name


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_summed_up(name: str) -> None:
    bits = RANDOM.integers(0, 256, 3000 * TYPES[name].itemsize, dtype=np.uint8)
    if name == "bool":
        bits &= 1
    array = from_bytes(name, (3000,), bits.tobytes())
    if name.startswith(("float64", "complex128")):
        array = array.clip(-1e100, 1e100) if name == "float64" else array / 1e200
        array = np.nan_to_num(array, posinf=1e100, neginf=-1e100)
    if array.dtype.kind == "c":
        array = np.where(np.abs(array) < 1e30, array, 1)
    found = statistics_of(array.reshape(30, 100))
    assert_agrees(found, by_hand(array), 1e-6 if array.dtype.kind == "c" else 1e-10)
    assert sum(found.histogram) == found.count - found.nans - found.infs
    assert found.minimum <= found.percentiles[0] <= found.percentiles[-1] <= found.maximum


@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_any_floats_are_summed_up(numbers: list[float]) -> None:
    found = statistics_of(np.array(numbers, np.float32))
    if any(map(math.isfinite, numbers)):
        assert_agrees(found, by_hand(np.array(numbers, np.float32)))
    else:
        assert math.isnan(found.mean) and math.isnan(found.norm) and math.isnan(found.minimum)
        assert found.nans + found.infs == len(numbers)


@given(st.lists(st.floats(-1e308, 1e308), min_size=2, max_size=20))
def test_doubles_neither_overflow_nor_vanish(numbers: list[float]) -> None:
    found = statistics_of(np.array(numbers))
    largest = max(map(abs, numbers))
    with np.errstate(over="ignore"):
        expected = float(np.linalg.norm(np.array(numbers) / (largest or 1))) * largest
    assert found.norm == pytest.approx(expected, rel=1e-9)
    assert min(numbers) <= found.mean <= max(numbers)
    assert math.isfinite(found.std) or not math.isfinite(expected)


def test_a_large_mean_does_not_swallow_the_spread() -> None:
    array = 1e8 + RANDOM.standard_normal(300_000)
    assert statistics_of(array).std == pytest.approx(array.std(), rel=1e-6)
    for number in RANDOM.standard_normal(20):
        assert statistics_of(np.full(99_999, number)).std == 0


def test_chunks_agree_with_the_whole() -> None:
    array = RANDOM.standard_normal(1_000_003).astype(np.float32)
    array[5::1000], array[7::1000], array[9::1000] = 0, np.nan, -np.inf
    wide = array[np.isfinite(array)].astype(np.float64)
    found = statistics_of(array)
    assert (found.zeros, found.nans, found.infs) == ((array == 0).sum(), np.isnan(array).sum(), np.isinf(array).sum())
    assert found.mean == pytest.approx(wide.mean(), abs=1e-14)
    assert found.std == pytest.approx(wide.std(), rel=1e-13)
    assert found.norm == pytest.approx(np.linalg.norm(wide), rel=1e-13)
    assert found.percentiles == pytest.approx(np.percentile(wide, PERCENTILES), abs=0.2)


def test_a_chunk_without_a_finite_number_is_counted() -> None:
    array = np.full(200_000, np.nan, np.float32)
    array[-1] = 3
    found = statistics_of(array)
    assert (found.nans, found.mean, found.std, found.norm) == (199_999, 3, 0, 3)


def test_nothing_and_one_number() -> None:
    nothing, one = statistics_of(np.empty((0, 3), np.float32)), statistics_of(np.float32(-2))
    assert nothing.count == 0 and math.isnan(nothing.mean) and sum(nothing.histogram) == 0
    assert len(nothing.percentiles) == len(PERCENTILES) and len(nothing.histogram) == BINS
    assert (one.count, one.mean, one.std, one.norm, one.percentiles[3]) == (1, -2, 0, 2, -2)
    assert sum(one.histogram) == 1
    for bad, nans in ((np.nan, 1), (np.inf, 0)):
        found = statistics_of(np.float64(bad))
        assert (found.nans, found.infs) == (nans, 1 - nans) and math.isnan(found.mean)


def test_whole_numbers_keep_their_ends() -> None:
    found = statistics_of(np.array([-(2**53), 0, 2**53], np.int64))
    assert (found.minimum, found.maximum, found.zeros) == (-(2.0**53), 2.0**53, 1)
    assert statistics_of(np.array([2**64 - 1, 0], np.uint64)).maximum == 2.0**64


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=50))
def test_a_number_is_counted_between_the_edges_it_lies_in(numbers: list[float]) -> None:
    counts = [0] * BINS
    for one in numbers:  # a power of two belongs to the bin away from zero
        counts[sum(one >= edge if edge > 0 else one > edge for edge in EDGES[1:-1])] += 1
    assert statistics_of(np.array(numbers)).histogram == tuple(counts)


def test_edges_are_fixed_rising_and_the_same_on_both_sides() -> None:
    assert list(EDGES) == sorted(EDGES) and len(EDGES) == BINS + 1 == 116
    assert [-edge for edge in reversed(EDGES)] == list(EDGES)


def test_histograms_of_steps_add_up() -> None:
    parts = [RANDOM.standard_normal(500).astype(np.float32) for _ in range(4)]
    together = np.sum([statistics_of(part).histogram for part in parts], axis=0)
    assert statistics_of(np.concatenate(parts)).histogram == tuple(together)


def test_a_histogram_looks_at_some_numbers_of_every_channel() -> None:
    array = np.zeros((256, 128, 32), np.float32)
    array[:, 77] = 1  # one channel of many
    found = statistics_of(array)
    assert sum(found.histogram) <= SUBSAMPLE_SIZE
    share = found.histogram[EDGES.index(1.0)] / sum(found.histogram)
    assert share == pytest.approx(1 / 128, rel=0.1)
    assert statistics_of(array) == found


@given(st.integers(1, 10**9))
def test_an_even_stride_meets_every_place_of_a_row(size: int) -> None:
    stride = even_stride(size, SUBSAMPLE_SIZE)
    assert -(-size // stride) <= SUBSAMPLE_SIZE and (stride == 1 or math.gcd(stride, size) == 1)


@pytest.mark.parametrize("shape", [(7,), (300, 700), (4, 3, 50_001)])
def test_the_same_array_always_gives_the_same_result(shape: tuple[int, ...]) -> None:
    array = RANDOM.normal(size=shape).astype(np.float32)
    first = pickle.dumps(statistics_of(array))
    statistics_of(RANDOM.normal(size=shape))  # what came between does not matter, nor where the array lies
    assert [pickle.dumps(statistics_of(other)) for other in (array, array.copy(), array.copy())] == [first] * 3


def test_what_a_device_has_summed_up_passes_through() -> None:
    there = Statistics(10, 0, 0, 1, 0.5, 0.1)
    assert summarise(Delivery(Sample(0, "a", "output", array=np.empty(0)), summary=there)) is there


def test_a_part_says_that_it_is_one() -> None:
    found = summarise(Delivery(Sample(0, "a", "output", array=np.ones(5)), stride=4, whole=(20,)))
    assert (found.count, found.stride) == (5, 4)


def test_memory_stays_flat_for_a_large_array() -> None:
    code = """
import resource, numpy as np
from torcheer.vocabulary.array_statistics import statistics_of
array = np.ones(10_000_000, np.float32)
array[::7] = np.nan
statistics_of(array[:100_000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
statistics_of(array)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = run_python("-c", code)
    assert int(done.stdout) < 8_000  # kilobytes; the array itself has 40,000


def test_two_floats_that_make_a_magnitude_no_float_holds_are_finite() -> None:
    found = statistics_of(np.array([3e38 + 3e38j, 3e38 - 3e38j], np.complex64))
    assert found.infs == 0 and found.maximum == pytest.approx(3e38 * 2**0.5)


# -- of values that are on a device, whichever it is


SIZES = [(7,), (40, 50), (64, 4, 16), (3, 5, 4000), (300, 400)]


def on_device(*values: Any, whole: bool = False, limit_bytes: int | None = None) -> list[Delivery]:
    """The road of values on a device, taken by some on the CPU."""
    ring = Ring(16 << 20)
    fetcher = Fetcher(ring)
    for step, value in enumerate(values):
        if whole:
            fetcher.fetch_tensor(value, limit_bytes=limit_bytes or 1 << 20, layer="a", variable="output", step=step)
        else:
            fetcher.fetch_statistics(value, limit_bytes=row_bytes(value), layer="a", variable="output", step=step)
    fetcher.harvest(wait=True)
    reader = RingReader(os.dup(ring.fd))
    found = list(iter(reader.take, None))
    reader.close()
    ring.close()
    return found


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_a_sheet_finds_what_the_child_finds(kind: torch.dtype) -> None:
    source = torch.Generator().manual_seed(0)
    values = [(torch.randn(size, generator=source) * 3).relu().to(kind) for size in SIZES]
    for value, sent in zip(values, on_device(*values)):
        mine, child = summarise(sent), statistics_of(value.float().numpy())
        assert sent.type == str(kind).removeprefix("torch.")
        assert mine.minimum == child.minimum and mine.mean == pytest.approx(child.mean, rel=0.02)
        assert mine.percentiles == pytest.approx(child.percentiles, rel=0.15, abs=0.2)
        shares = [np.array(one.histogram) / sum(one.histogram) for one in (mine, child)]
        assert np.abs(shares[0] - shares[1]).max() < 0.03
        if value.numel() <= SAMPLE:  # all of it came along
            assert mine.histogram == child.histogram and mine.percentiles == child.percentiles
            assert np.array_equal(sent.sample.array.astype(np.float32), value.float().numpy())


def test_a_sample_from_a_sheet_says_which_numbers_it_has() -> None:
    value = torch.arange(300 * 400, dtype=torch.float32).reshape(300, 400)
    (sent,) = on_device(value)
    assert sent.whole == (300, 400) and 1000 < sent.sample.array.size <= SAMPLE
    assert np.array_equal(sent.sample.array, np.arange(sent.sample.array.size) * sent.stride)
    columns = {int(number) % 400 for number in sent.sample.array}
    assert len(columns) == 400  # every one is met


def test_rules_see_on_a_device_what_they_see_elsewhere() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(20, 200), nn.Tanh(), nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 400), nn.Sigmoid(),
        nn.Linear(400, 4),
    )  # fmt: skip
    model[0].weight.data *= 200
    model[2].bias.data[:250] = -100.0  # so many units of the ReLU are dead
    model[4].weight.data *= 300
    judge, found = Rules(resolve_rules(["saturation", "dead_relu"])), []
    for step in range(12):
        values, x = [], torch.randn(64, 20)
        for layer in model:
            x = layer(x)
            values.append(x.detach())
        for name, sent in enumerate(on_device(*values)):
            sent = replace(sent, sample=replace(sent.sample, step=step, layer=str(name)))
            found += judge.judge(sent, summarise(sent))
    found += judge.close()
    told = {(alert.rule, alert.layer) for alert in found}
    also = {(alert.rule, name.split()[0]) for alert in found for name in alert.values.get("also", ())}
    assert told | also == {("saturation", "1"), ("saturation", "5"), ("dead_relu", "3")}


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_what_is_fetched_whole_and_is_too_large_is_sampled_where_it_is(bad: float) -> None:
    value = torch.rand(200, 300)
    value[100, 150] = bad  # most likely not one of those that are fetched
    (sent,) = on_device(value, whole=True, limit_bytes=20_000)
    assert sent.whole == (200, 300) and sent.stride >= 12 and sent.finite is (bad == 0.0)
    assert np.array_equal(sent.sample.array, value.reshape(-1)[:: sent.stride].numpy(), equal_nan=True)


def test_what_is_fetched_whole_less_another_says_which_numbers_it_has() -> None:
    ring, value = Ring(1 << 20), torch.rand(200, 300)
    fetcher, before = Fetcher(ring), subsample(value - 1, 20_000)[0].clone()
    fetcher.fetch_tensor(value, before, limit_bytes=20_000, layer="a", variable="update", step=0)
    fetcher.harvest(wait=True)
    reader = RingReader(os.dup(ring.fd))
    sent = reader.take()
    reader.close()
    ring.close()
    assert sent is not None and sent.whole == (200, 300) and sent.stride >= 12
    assert np.allclose(sent.sample.array, 1.0)


@pytest.mark.parametrize("count", [2, 7, 256])
def test_many_values_have_the_statistics_that_each_has_alone_bit_for_bit(count: int) -> None:
    draw = np.random.default_rng(count)
    sent = []
    for number in range(512):
        size = int(draw.choice([1, 2, 3, 4, 8, 9, 127, 128, 129, 1000, 4096, 4097]))
        kind = draw.choice(["float32", "float64", "float16", "int64", "uint8", "complex64", "bool"])
        with np.errstate(all="ignore"):
            array = (draw.normal(size=size) * 10.0 ** draw.integers(-200, 200)).astype(kind)
            array = array if number % 3 else (draw.normal(size=size) * 10).astype(kind)
        if number % 7 == 0:
            array[:] = array[0]
        if number % 11 == 0:
            array[::2] = 0
        if number % 13 == 0 and array.dtype.kind == "f":
            array[-1] = math.nan if number % 2 else math.inf
        sent.append(Delivery(Sample(number, "layer", "output", array=array), stride=1 + number % 2))
    for begin in range(0, len(sent), count):
        together = sent[begin : begin + count]
        alone = [repr(summarise(each)) for each in together]
        found = [repr(each) for each in summarise_together(together)]
        assert [text.replace("-0.0", "0.0") for text in found] == [text.replace("-0.0", "0.0") for text in alone]
