"""What the tests of the producer share: batches, a loop, and a ring that is read in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from seams import Probes, Ring, RingReader, Sender, choose, schedule_of
from torch import nn

from torcheer.samples import Delivery

EVERYTHING = ("output", "grad", "weight", "weight_grad", "update")


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return torch.rand(5, 1, 8, 8, generator=source), torch.randint(0, 3, (5,), generator=source)


def train(
    model: nn.Module,
    steps: int = 6,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    after: Callable[[torch.Tensor], Any] = lambda loss: None,
) -> list[float]:
    """The loop that people write; its losses."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)  # for dropout
    losses = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        after(loss)
        losses.append(loss.item())
    return losses


class Probed:
    """A model with probes on it, what they send, and what they complain of."""

    def __init__(self, model: nn.Module, *, layers: Any = None, what: Any = EVERYTHING, every: Any = 1, **more: Any):
        what = (what,) if isinstance(what, str) else what
        self.ring = Ring(8 << 20)
        self.reader = RingReader(os.dup(self.ring.fd))
        self.problems: list[str] = []
        limit = more.pop("limit_bytes", 1 << 20)
        self.sender = Sender(
            self.ring, limit_bytes=limit, share_bytes=self.ring.share_bytes, whole=more.pop("whole", ()),
            report=self.problems.append,
        )  # fmt: skip
        self.probes = Probes(
            model, choose(model, layers), what, self.sender, schedule=schedule_of(every),
            on_boundary=lambda: None,
        )  # fmt: skip
        self.probes.attach(**more)
        self._kept: list[Delivery] = []
        self._open = True

    def __enter__(self) -> Probed:
        return self

    def __exit__(self, *_: Any) -> None:
        self.probes.close()
        self.taken()
        self._open = False
        self.reader.close()
        self.ring.close()

    def taken(self) -> list[Delivery]:
        """Everything that was sent so far."""
        while self._open and (sent := self.reader.take()) is not None:
            self._kept.append(sent)
        return self._kept

    def values(self) -> dict[tuple[str, str, int], Any]:
        """The same as arrays by layer, variable and step; the timing is left out."""
        sent = [sent for sent in self.taken() if sent.sample.variable != "metric"]
        return {(*one.key, one.sample.step): one.sample.array for one in sent}


def hooks_of(model: nn.Module) -> int:
    """How many hooks there are anywhere in a model."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    on_modules = sum(len(getattr(module, name)) for module in model.modules() for name in names)
    on_parameters = sum(len(p._backward_hooks or ()) for p in model.parameters())
    return on_modules + on_parameters
