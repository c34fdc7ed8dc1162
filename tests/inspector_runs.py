"""Small real trainings, each value of each step as the inspector's child would get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from seams import Rules, resolve_rules
from torch import nn

from torcheer.records import Sample
from torcheer.samples import Alert, Delivery, summarise

Batches = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def sent(step: int, layer: str, variable: str, value: Any, **extras: Any) -> Delivery:
    """A value as it arrives."""
    array = value.detach().clone().numpy() if isinstance(value, torch.Tensor) else value
    return Delivery(Sample(step, layer, variable, array=array), **extras)


def training(
    model: nn.Module,
    batches: Batches,
    steps: int,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    loss_of: Any = nn.functional.cross_entropy,
    before: Callable[[int], None] = lambda step: None,
) -> Iterator[Delivery]:
    """Train, and send outputs, gradients, weights, their gradients and updates, and the loss of every step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        before(step)
        found: list[Delivery] = [sent(step, name, "weight", one) for name, one in model.named_parameters()]
        weights = {name: one.detach().clone() for name, one in model.named_parameters()}
        inputs, targets = batches(step)
        handles = [
            module.register_forward_hook(hook(found, step, name)) for name, module in model.named_modules() if name
        ]
        output = model(inputs)
        for handle in handles:
            handle.remove()
        loss = loss_of(output, targets)
        optimizer.zero_grad()
        loss.backward()
        for name, one in model.named_parameters():
            if one.grad is not None:
                found.append(sent(step, name, "weight_grad", one.grad))
        optimizer.step()
        for name, one in model.named_parameters():
            if one.requires_grad:
                found.append(sent(step, name, "update", one.detach() - weights[name]))
        yield from found
        yield sent(step, "loss", "metric", loss)


def hook(found: list[Delivery], step: int, name: str) -> Any:
    """Send a module's output, and its gradient."""

    def see(module: nn.Module, inputs: Any, output: Any) -> None:
        if not isinstance(output, torch.Tensor):
            return
        found.append(sent(step, name, "output", output))
        if output.requires_grad:
            output.register_hook(lambda gradient: found.append(sent(step, name, "grad", gradient)))

    return see


def judged(values: Iterator[Delivery], rules: Any = "default") -> list[Alert]:
    """What the rules tell of a run."""
    problems: list[str] = []
    judge = Rules(resolve_rules(rules), problems.append)
    alerts = [alert for one in values for alert in judge.judge(one, summarise(one))]
    alerts += judge.close()
    assert problems == []
    return alerts


def blobs(classes: int = 4, features: int = 20, size: int = 32, shape: tuple[int, ...] = ()) -> Batches:
    """Batches of points around a centre for each class; the same for the same step."""
    centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(1)) * 1.5

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(1000 + step)
        targets = torch.randint(classes, (size,), generator=random)
        points = centres[targets] + torch.randn(size, features, generator=random)
        return points.reshape(size, *shape) if shape else points, targets

    return batch
