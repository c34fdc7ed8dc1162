"""Torch's own table of sample inputs: our values and gradients equal torch's, or we say that there is no rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from seams import leaves
from torch import Tensor

from torcheer import autograd
from torcheer.errors import BadArgument, MissingRule

MOST = 4  # samples of one operation, spread over all it has
LARGE = 1000  # elements: as much can be learned from fewer
OTHER_NUMBERS = (
    "fft.",
    "stft",
    "istft",
    "complex",
    "polar",
    "view_as_complex",
    "sparse",
    "to_sparse",
    "masked.",
    "jiterator",
)
# At zero, torch's second order is no number; ours is zero.
BETTER = {"linalg.norm.subgradients_at_zero"}
# Torch says that a gradient of zero comes back through these; we, that none does.
NO_GRADIENT = {"normal", "normal.number_mean", "bernoulli", "fill", "zero_", "linalg.slogdet", "native_group_norm"}
ROUNDED = {"nn.functional.hardsigmoid": 1e-6, "nn.functional.rrelu": 1e-6}  # torch's own constants are


pytestmark = pytest.mark.usefixtures("one_thread")


def test_values_and_gradients_of_both_orders_equal_torchs() -> None:
    """One test for all operations: to import torch's table takes seconds, in every process that looks for tests."""
    pytest.importorskip("expecttest", reason="torch's own table asks for it")
    checked, wrong = 0, {}
    for name, info in operations().items():
        checked += 1
        try:
            check(info, ROUNDED.get(name, 1e-9))
        except Exception as error:
            wrong[name] = error
    assert not wrong
    assert checked > 400


def operations() -> dict[str, Any]:
    """The operations of torch's table that have gradients, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    named = {
        f"{info.name}.{info.variant_test_name}".rstrip("."): info
        for info in op_db
        if info.supports_autograd
        and torch.float64 in info.supported_dtypes("cpu")
        and not info.name.startswith(OTHER_NUMBERS)
    }
    return {name: info for name, info in named.items() if name not in NO_GRADIENT | BETTER}


def check(info: Any, within: float) -> None:
    for call, tensors in calls(info):
        try:
            with autograd.record():
                found = gradients(call, tensors)
        except (MissingRule, BadArgument):
            continue
        try:
            expected = gradients(call, tensors)
        except (RuntimeError, NotImplementedError):
            continue  # torch has none itself
        assert len(found) >= len(expected)
        for mine, other in zip(found, expected):
            assert_equal(mine, other, within)


def calls(info: Any) -> Iterator[tuple[Callable[[], Any], list[Tensor]]]:
    """Some samples as functions, with other memory, and written in place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # manual_seed() also writes down who asked
        samples = list(info.sample_inputs_func(info, "cpu", torch.float64, True))  # untracked, hence quicker
    samples = [one for one in samples if all(0 < tensor.numel() < LARGE for tensor in leaves(one.input))]
    for sample in samples[:: max(len(samples) // MOST, 1)][:MOST]:
        yield called(info.op, sample)
    for sample in samples[:1]:
        yield called(info.op, sample.noncontiguous())
        if info.inplace_variant is not None and not sample.broadcasts_input:
            yield called(lambda x, *args, **kwargs: info.inplace_variant(x * 1, *args, **kwargs), sample)


def called(function: Any, sample: Any) -> tuple[Callable[[], Any], list[Tensor]]:
    def call() -> Any:
        torch.default_generator.manual_seed(0)
        return function(sample.input, *sample.args, **sample.kwargs)

    return call, [one for one in leaves((sample.input, sample.args, sample.kwargs)) if one.requires_grad]


def gradients(call: Callable[[], Any], tensors: list[Tensor]) -> list[list[Tensor]]:
    """The values; the gradients of their random mixture; where there are any, the gradients of those."""
    values = [one for one in leaves(call()) if one.dtype is torch.float64 and one.requires_grad]
    if not values:
        return [[]]
    first = torch.autograd.grad(values, tensors, mixture(values), create_graph=True, allow_unused=True)
    found = [[one.detach() for one in values], filled(first, tensors)]
    mixed = [(one, way) for one, way in zip(first, mixture(tensors)) if one is not None and one.requires_grad]
    live, ways = zip(*mixed) if mixed else ((), ())
    try:
        second = torch.autograd.grad(live, tensors, ways, allow_unused=True) if live else [None] * len(tensors)
    except RuntimeError:  # torch has no second order for everything
        return found
    return [*found, filled(second, tensors)]


def mixture(tensors: list[Tensor]) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    return [torch.randn(one.shape, generator=random, dtype=one.dtype) for one in tensors]


def filled(found: Any, tensors: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(one) if two is None else two.detach() for one, two in zip(tensors, found)]


def assert_equal(mine: list[Tensor], theirs: list[Tensor], within: float) -> None:
    for one, other in zip(mine, theirs, strict=True):
        size = max(float(other[other.isfinite()].abs().amax()) if other.isfinite().any() else 0.0, 1.0)
        torch.testing.assert_close(one, other, rtol=within, atol=within * size, equal_nan=True)
