"""Models that train on our backward end where torch's own would have brought them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fast_cases import fast_first
from models import CASES, AlexNet, images, labels
from seams import leaves
from torch import Tensor, nn

from torcheer import autograd

STEPS = 50


pytestmark = pytest.mark.usefixtures("one_thread")


def trained(
    make: Callable[[], nn.Module], x: Tensor, target: Tensor, dtype: torch.dtype, ours: bool, steps: int = STEPS
) -> tuple[list[Tensor], list[float]]:
    """The weights after some steps of Adam, and the losses on the way."""
    torch.manual_seed(0)
    model = make().to(dtype)
    x = x.to(dtype) if x.is_floating_point() else x
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with autograd.record() if ours else nullcontext():
        for _ in range(steps):
            torch.manual_seed(len(losses))  # dropout draws the same
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return [*model.state_dict().values()], losses


def apart(one: list[Tensor], two: list[Tensor]) -> float:
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(one, two))


@pytest.mark.parametrize("name", fast_first(CASES, 2))
def test_fifty_steps_of_adam_end_where_torch_ends(name: str) -> None:
    make, x, target = CASES[name]
    exact, losses = trained(make, x(), target, torch.float64, ours=False)
    ours, our_losses = trained(make, x(), target, torch.float64, ours=True)
    assert losses[-1] < 0.95 * losses[0]  # it does learn
    assert apart(exact, ours) < 1e-8
    assert max(abs(a - b) for a, b in zip(losses, our_losses)) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_torch_follows_nothing_and_its_engine_is_never_entered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def entered(*_: Any, **__: Any) -> None:
        raise AssertionError("torch's backward engine was entered")

    for place in (torch.autograd, torch.autograd.graph):
        monkeypatch.setattr(place, "_engine_run_backward", entered)
    make, x, target = CASES[name]
    made: list[Tensor] = []
    model = make()
    for module in model.modules():
        module.register_forward_hook(lambda _, __, out: made.extend(leaves(out)))
    with autograd.record():
        F.cross_entropy(model(x()), target).backward()
    made += [parameter.grad for parameter in model.parameters()]
    assert len(made) > 8
    assert [one for one in made if one.grad_fn is not None] == []


@pytest.mark.parametrize("name", fast_first(CASES, 2))
def test_in_single_precision_we_stray_no_further_than_torch_does(name: str) -> None:
    make, x, target = CASES[name]
    exact, _ = trained(make, x(), target, torch.float64, ours=False)
    theirs, their_losses = trained(make, x(), target, torch.float32, ours=False)
    ours, our_losses = trained(make, x(), target, torch.float32, ours=True)
    assert apart(ours, exact) < 4 * apart(theirs, exact) + 1e-6
    assert our_losses == pytest.approx(their_losses, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_the_full_alexnet_strays_no_further_than_torch_does() -> None:
    x, target = images(2, 3, 96), labels(2, 10)
    exact, exact_losses = trained(AlexNet, x, target, torch.float64, ours=False)
    theirs, their_losses = trained(AlexNet, x, target, torch.float32, ours=False)
    far, lost = apart(theirs, exact), mean_apart(their_losses, exact_losses)
    del theirs  # 61 million numbers each
    ours, our_losses = trained(AlexNet, x, target, torch.float32, ours=True)
    assert our_losses[:5] == pytest.approx(exact_losses[:5], rel=1e-3)  # before rounding has grown
    assert apart(ours, exact) < 4 * far
    assert mean_apart(our_losses, exact_losses) < 4 * lost


def mean_apart(one: list[float], two: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, two)) / len(one)


def test_running_statistics_of_batch_norm_are_torchs() -> None:
    make, x, target = CASES["ResNet block"]
    theirs, _ = trained(make, x(), target, torch.float64, ours=False, steps=3)
    ours, _ = trained(make, x(), target, torch.float64, ours=True, steps=3)
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    assert apart(theirs, ours) < 1e-12
