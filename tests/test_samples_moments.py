"""Mean and deviation of numbers far from zero, huge and tiny, wherever the package computes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from seams import _report_statistics as of_report
from seams import _tool_statistics as of_mcp
from seams import describe_numbers, summarise, summary_of
from test_monitor_array_statistics import on_device

import torcheer as tl
from torcheer.samples import Moments, moments_of


def far() -> torch.Tensor:
    """Doubles around 1e8 that differ by a tenth; what stands first lies elsewhere."""
    numbers = 1e8 + 0.0975 * torch.randn(300, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return numbers.round(decimals=4)


SAMPLES: dict[str, Callable[[], torch.Tensor]] = {
    "far from zero": far,
    "far from zero, after zeros": lambda: torch.cat([torch.zeros(70_000, dtype=torch.float64), far().flatten() * 1e4]),
    "float32": lambda: 1e4 + 0.01 * torch.randn(70_000, generator=torch.Generator().manual_seed(0)),
    "bfloat16": lambda: torch.tensor([256.0, 258.0]).repeat(50).bfloat16(),
    "integers": lambda: torch.tensor([10**12, 10**12 + 1, 10**12 + 3]).repeat(100),
    "huge": lambda: torch.tensor([1e300, 1.5e300, -1e300], dtype=torch.float64),
    "tiny": lambda: torch.tensor([1e-300, 3e-300, 1e-301], dtype=torch.float64),
    "constant": lambda: torch.full((70_001,), 0.1, dtype=torch.float64),
    "with NaN": lambda: torch.tensor([1e8, 1e8 + 1, math.nan, math.inf], dtype=torch.float64),
}
WHERE: dict[str, Callable[[Any], tuple[float, float]]] = {
    "the watch": lambda x: (summary_of(as_array(x)).mean, summary_of(as_array(x)).std),
    "a device": lambda x: (summarise(on_device(x)[0]).mean, summarise(on_device(x)[0]).std),
    "the inspector": lambda x: (describe_numbers(as_array(x), -1).mean, describe_numbers(as_array(x), -1).std),
    "a report": lambda x: (of_report(as_array(x))["Mean"], of_report(as_array(x))["Std"]),
    "the MCP server": lambda x: (of_mcp(as_array(x))["mean"], of_mcp(as_array(x))["std"]),
}


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def by_hand(tensor: torch.Tensor) -> tuple[float, float]:
    """Exactly: in Python's fractions."""
    numbers = [number for number in tensor.double().flatten().tolist() if math.isfinite(number)]
    scale = max(map(abs, numbers))
    if 1e-100 < scale < 1e100:
        mean = fmean(numbers)
        return mean, math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / len(numbers))
    return fmean(number / scale for number in numbers) * scale, pstdev(number / scale for number in numbers) * scale


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_deviation_is_right_of(sample: str, where: str) -> None:
    numbers = SAMPLES[sample]()
    numbers = numbers.flatten()[-60_000:] if where == "a device" else numbers  # of more, it takes every n-th
    mean, deviation = by_hand(numbers)
    found = WHERE[where](numbers)
    assert found[0] == pytest.approx(mean, rel=1e-12)
    assert found[1] == pytest.approx(deviation, rel=1e-6, abs=1e-15 * abs(mean))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_files_tensor_says_its_deviation(sample: str, tmp_path: Path) -> None:
    numbers = SAMPLES[sample]()
    save_file({"x": numbers}, tmp_path / "w.safetensors")
    facts = tl.load(tmp_path / "w.safetensors")["x"].statistics()
    mean, deviation = by_hand(numbers)
    assert (facts["mean"], facts["std"]) == (
        pytest.approx(mean, rel=1e-12), pytest.approx(deviation, rel=1e-9, abs=1e-15 * abs(mean)),
    )  # fmt: skip


def test_chunks_of_other_scales_join_to_the_same() -> None:
    numbers = np.concatenate([np.full(3, 1e-200), [1e200, 3e200], np.zeros(2), [np.nan, -np.inf]])
    whole, parts = moments_of(numbers), Moments()
    for start in range(0, len(numbers), 2):
        parts.add(numbers[start : start + 2])
    for one in (whole, parts):
        assert (one.finite, one.zeros, one.nans, one.infs) == (7, 2, 1, 1)
        assert (one.minimum, one.maximum) == (0.0, 3e200)
    assert (parts.mean, parts.std, parts.norm) == pytest.approx((whole.mean, whole.std, whole.norm))
    assert whole.norm == pytest.approx(math.sqrt(10) * 1e200)


def test_nothing_has_no_mean() -> None:
    empty = moments_of(np.array([np.nan]))
    assert math.isnan(empty.mean) and math.isnan(empty.std) and empty.norm == 0.0
