"""The same hostile arrays at every door that shows statistics, against exact arithmetic.

An array that was summed up in eight places once had one wrong deviation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rank_logs import RankLog
from safetensors.numpy import save_file
from seams import RunTools, Statistics, Summation, describe_numbers, layer_statistics, merge_rows, statistics_of
from test_vocabulary_array_statistics import on_device

import torcheer as tl
from torcheer.records import Sample
from torcheer.samples import PARTS, Delivery, summarise, summarise_together

RANDOM = np.random.default_rng(0)
Facts = dict[str, Any]


def _far() -> np.ndarray[Any, Any]:
    return np.round(1e8 + 0.0975 * RANDOM.standard_normal(140_000), 4)


ARRAYS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "far from zero": _far,
    "far from zero, after zeros": lambda: np.concatenate([np.zeros(140_000), _far() * 1e4]),
    "neighbours of doubles": lambda: 1e16 + 2.0 * RANDOM.integers(0, 2, 300_000),
    "float32": lambda: (1e4 + 0.01 * RANDOM.standard_normal(50_000)).astype(np.float32),
    "neighbours of float32": lambda: np.tile(np.array([1e6, 1e6 + 0.0625], np.float32), 3000),
    "constant": lambda: np.full(70_001, 0.1),
    "huge": lambda: np.array([1e300, 1.5e300, -1e300]),
    "the ends of doubles": lambda: np.array([1.7e308, -1.7e308, 1.0] * 50),
    "tiny": lambda: np.array([1e-300, 3e-300, 1e-301]),
    "huge after tiny": lambda: np.concatenate([np.full(3, 1e-200), [1e200, 3e200], np.zeros(2)]),
    "NaN and infinities": lambda: np.array([1e8, 1e8 + 1, math.nan, math.inf, -math.inf, 0.0] * 9),
    "nothing finite": lambda: np.array([math.nan, math.inf, math.nan]),
    "empty": lambda: np.empty((0, 3), np.float32),
    "one": lambda: np.array([-2.5]),
    "float16 whose sum overflows": lambda: np.tile(np.array([65504, 60000, -3], np.float16), 700),
    "float16 that overflowed": lambda: np.array([65504, np.inf, 1, 2], np.float16),
    "bool": lambda: RANDOM.random(900) < 0.3,
    "complex": lambda: np.array([3e38 + 3e38j, 3 + 4j, 0, math.nan], np.complex64),
    "the ends of int64": lambda: np.array([2**63 - 1, -(2**63), 0, 5], np.int64),
    "large whole numbers": lambda: np.array([10**12, 10**12 + 1, 10**12 + 3] * 100),
    "uint8": lambda: RANDOM.integers(0, 256, (40, 50)).astype(np.uint8),
    "not contiguous": lambda: RANDOM.standard_normal((300, 40)).astype(np.float32).T[::-2, ::3],
}


def exact(array: np.ndarray[Any, Any]) -> Facts:
    """The statistics in whole numbers of any length, of an array as doubles; of complex numbers by magnitude."""
    wide = np.abs(array.astype(np.complex128)) if array.dtype.kind == "c" else array.astype(np.float64)
    numbers = [number for number in wide.reshape(-1).tolist() if math.isfinite(number)]
    facts: Facts = {
        "count": wide.size, "zeros": sum(number == 0 for number in numbers),
        "nans": int(np.isnan(wide).sum()), "infs": int(np.isinf(wide).sum()),
    }  # fmt: skip
    if not numbers:
        return facts | dict.fromkeys(("minimum", "maximum", "mean", "std", "norm", "rms"))
    ratios = [number.as_integer_ratio() for number in numbers]
    common, size = max(below for _, below in ratios), len(numbers)
    whole = [above * (common // below) for above, below in ratios]
    total, squares = sum(whole), sum(number * number for number in whole)
    facts |= {"minimum": min(numbers), "maximum": max(numbers), "mean": float(Fraction(total, size * common))}
    return facts | {
        "std": _root(Fraction(size * squares - total * total, (size * common) ** 2)),
        "norm": _root(Fraction(squares, common**2)),
        "rms": _root(Fraction(squares, size * common**2)),
    }


def _root(square: Fraction) -> float:
    """The root of a fraction, as a double; infinite where none holds it."""
    shift = 2 * ((square.denominator.bit_length() - square.numerator.bit_length()) // 2 + 64)
    scaled = Fraction(square.numerator << max(shift, 0), square.denominator << max(-shift, 0))
    root = Fraction(math.isqrt(scaled.numerator // scaled.denominator))
    root = root / (1 << shift // 2) if shift >= 0 else root * (1 << -shift // 2)
    return math.inf if root > Fraction(2) ** 1023 * Fraction(2 - 2**-52) else float(root)


def of_watch(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    return summarise(Delivery(Sample(0, "a", "output", array=array))).facts()


def of_many(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    """Beside another small array, which the watch sums up with few operations for both."""
    both = [Delivery(Sample(0, "a", "output", array=each)) for each in (array, np.ones(7))]
    return summarise_together(both)[0].facts()


def of_device(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    return summarise(on_device(torch.tensor(array.reshape(-1)[:60_000]))[0]).facts()


def of_kernel(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    """The parts that a kernel of a GPU sums up, merged."""
    rows = np.zeros((1, PARTS, 8))
    for place, part in enumerate(np.array_split(array.reshape(-1), PARTS)):
        found = statistics_of(part)
        rows[0, place] = [
            found.count, found.zeros, found.minimum if found.finite else math.inf,
            found.maximum if found.finite else -math.inf, found.mean if found.finite else 0.0,
            found.std if found.finite else 0.0, found.nans, found.infs,
        ]  # fmt: skip
    return Statistics.of_row(merge_rows(rows)[0].tolist()).facts()


def of_parts(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    summation, other = Summation(), Summation()
    for place, part in enumerate(np.array_split(array.reshape(-1), 9)):
        (summation if place % 2 else other).add(part)
    summation.merge(other)
    return summation.finish().facts()


def of_log(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    log = RankLog(folder, 0, 1)
    log.look(0, {("a", "output"): array})
    log.close()
    return _last(tl.load(folder))


def of_ranks(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    """Parts of it on three ranks, merged by who reads their logs."""
    for rank, part in enumerate(np.array_split(array.reshape(-1), 3)):
        log = RankLog(folder, rank, 3)
        log.look(0, {("a", "output"): part})
        log.close()
    return _last(tl.load(folder))


def _last(watched: Any) -> Facts:
    series = watched["a", "output"]
    facts = {name: getattr(series, name)[-1].item() for name in exact(np.ones(1))}
    return {name: None if number != number else number for name, number in facts.items()}


def of_page(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    found = describe_numbers(np.ascontiguousarray(array), -1)
    facts = dict(found.measured)
    facts |= {"minimum": facts.pop("min"), "maximum": facts.pop("max")}
    facts = {name: None if number != number else number for name, number in facts.items()}
    counts = {"count": found.count, "zeros": found.zeros, "nans": found.nans}
    return facts | counts | {"infs": found.plus_infs + found.minus_infs}


def of_report(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    layer = SimpleNamespace(layer=SimpleNamespace(name="a"))
    net = SimpleNamespace(layers=[layer], variables=[SimpleNamespace(name="Act")])
    store = SimpleNamespace(value=lambda *of: SimpleNamespace(array=array))
    table: Any = layer_statistics(SimpleNamespace(net=net, store=store), [SimpleNamespace(id=0, step=3)])  # type: ignore[arg-type, list-item]
    cells = {name: column[0] for name, column in table.columns.items()}
    titles = {"Numbers": "count", "Min": "minimum", "Max": "maximum", "NaN": "nans", "Infinite": "infs"}
    return {titles.get(name, name.lower()): cell for name, cell in cells.items()}


def of_file(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    save_file({"x": np.ascontiguousarray(array)}, folder / "w.safetensors")
    facts: Facts = tl.load(folder / "w.safetensors")["x"].statistics()
    return facts


def of_assistant(array: np.ndarray[Any, Any], folder: Path) -> Facts:
    save_file({"x": np.ascontiguousarray(array)}, folder / "w.safetensors")
    facts = RunTools(folder).values("w.safetensors", "x")
    return {name: float(number) if isinstance(number, str) and name != "layer" and name != "dtype" else number
            for name, number in facts.items()}  # fmt: skip


DOORS = [
    of_watch, of_many, of_device, of_kernel, of_parts, of_log, of_ranks, of_page, of_report, of_file, of_assistant,
]  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_statistics_are_exact_of(door: Callable[..., Facts], name: str, tmp_path: Path) -> None:
    array = ARRAYS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = door(array, tmp_path)
    expected = exact(array.reshape(-1)[:60_000] if door is of_device else array)
    for fact in ("count", "zeros", "nans", "infs"):
        assert found[fact] == expected[fact], fact
    if expected["mean"] is None:
        assert [found[fact] for fact in ("minimum", "maximum", "mean", "std", "norm", "rms")] == [None] * 6
        return
    scale = max(abs(expected["minimum"]), abs(expected["maximum"]))
    close = 1e-6 if door is of_device else 1e-9
    if door in (of_ranks, of_kernel) and expected["std"]:
        close = max(close, 2e-16 * scale / expected["std"])  # what parts hand on is rounded to doubles
    for fact in ("minimum", "maximum"):  # torch and numpy round magnitudes of complex numbers each in its own way
        assert found[fact] == pytest.approx(expected[fact], rel=4e-16 if array.dtype.kind == "c" else 0, abs=0), fact
    assert found["mean"] == pytest.approx(expected["mean"], rel=1e-12, abs=2e-16 * scale)
    assert found["std"] == pytest.approx(expected["std"], rel=close, abs=0)
    for fact in ("norm", "rms"):
        assert found[fact] == pytest.approx(expected[fact], rel=1e-12 if close == 1e-9 else 1e-6), fact
