"""One update: backward from the weighted sum of the losses, clip, step every optimizer once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.training.parts import Clip, Schedule


class Update:
    """What follows a forward pass in one pipeline."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        clips: Sequence[tuple[Clip, list[Tensor]]] = (),
        schedules: Sequence[Schedule] = (),
        averages: Sequence[Average] = (),
        scaler: Any = None,
        accumulate: int = 1,
        only: Sequence[Tensor] | None = None,
    ) -> None:
        self._optimizers, self._clips, self._averages = list(optimizers), list(clips), list(averages)
        self._schedules = [one.scheduler for one in schedules if one.every == "step"]
        self._scaler, self._accumulate = scaler, accumulate
        self._waiting, self._items = 0, 0.0
        self._plain = accumulate == 1 and scaler is None
        # gradients go to these alone: what is frozen here may be gathering its own in another pipeline
        self._only = None if only is None else list(only)

    @property
    def is_pending(self) -> bool:
        """Whether gradients wait for more batches."""
        return self._waiting > 0

    def backward(self, loss: Tensor, items: float) -> bool:
        """Take one batch's loss; whether the weights were updated."""
        if self._plain:
            for optimizer in self._optimizers:
                optimizer.zero_grad()
            loss.backward(inputs=self._only)
            self._step()
            return True
        if not self._waiting:
            for optimizer in self._optimizers:
                optimizer.zero_grad()
        if self._accumulate > 1:  # sums over items, divided by all of them at the end: batches may differ in size
            loss = loss * items
        (self._scaler.scale(loss) if self._scaler is not None else loss).backward(inputs=self._only)
        self._waiting += 1
        self._items += items
        return self.flush() if self._waiting >= self._accumulate else False

    def flush(self) -> bool:
        """Update with what there is."""
        if not self._waiting:
            return False
        if self._accumulate > 1:
            gradients = [p.grad for o in self._optimizers for g in o.param_groups for p in g["params"]]
            torch._foreach_div_([one for one in gradients if one is not None], self._items)
        self._waiting, self._items = 0, 0.0
        self._step()
        return True

    def _step(self) -> None:
        scaler = self._scaler
        if self._clips and scaler is not None:
            for optimizer in self._optimizers:
                scaler.unscale_(optimizer)
        for clip, parameters in self._clips:
            if clip.value is not None:
                torch.nn.utils.clip_grad_value_(parameters, clip.value)
            if clip.norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, clip.norm)
        for optimizer in self._optimizers:
            scaler.step(optimizer) if scaler is not None else optimizer.step()
        if scaler is not None:
            scaler.update()
        for scheduler in self._schedules:
            scheduler.step()
        for average in self._averages:
            average.update()


class Average:
    """An exponential average of a model's weights, swapped in for evaluation."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self._decay = decay
        named = {name: one for name, one in model.named_parameters() if one.is_floating_point()}
        self._names, self._live = list(named), list(named.values())
        self.values = [parameter.detach().clone() for parameter in self._live]

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self.values, [one.detach() for one in self._live], 1 - self._decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average; twice is nothing."""
        for live, value in zip(self._live, self.values):
            kept = live.detach().clone()
            live.copy_(value)
            value.copy_(kept)

    def state(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self.values))

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, value in zip(self._names, self.values):
            value.copy_(state[name])
