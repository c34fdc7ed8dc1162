"""One update: backward from the weighted sum of the losses, clip, step every optimizer once."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.training.spec.session_parts import Clip, Schedule


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
        self._waiting, self._items, self._unit = 0, 0.0, 1.0
        self.last_loss: Tensor | None = None  # of what waits
        each = (one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"])
        self._parameters: list[Tensor] = list(dict.fromkeys(each))  # two optimizers may have the same one
        self._gathered: list[tuple[Tensor, Tensor]] = []  # kept apart: so may other pipelines
        self._plain = accumulate == 1 and scaler is None
        # gradients go to these alone: what is frozen here may be gathering its own in another pipeline
        self._only = None if only is None else list(only)

    @property
    def is_pending(self) -> bool:
        """Whether gradients wait for more batches."""
        return self._waiting > 0

    def begin(self) -> None:
        """Before a forward pass: old gradients and new activations need not be held together."""
        if self._plain:
            for optimizer in self._optimizers:
                _forget_gradients(optimizer)

    def backward(self, loss: Tensor, items: float) -> bool:
        """Take one batch's loss; whether the weights were updated."""
        if self._plain:
            loss.backward(inputs=self._only)
            self._step()
            return True
        if not self._waiting:
            self._unit = items or 1.0
        # a sum over items, divided by all of them at the end: batches may differ in size
        scaled = loss if items == self._unit else loss * (items / self._unit)
        self._bring_back()
        (self._scaler.scale(scaled) if self._scaler is not None else scaled).backward(inputs=self._only)
        self._gathered = [(one, one.grad) for one in self._parameters if one.grad is not None]
        self._waiting += 1
        self._items += items
        self.last_loss = loss.detach()
        if self._waiting < self._accumulate:
            return False
        self._finish()
        return True

    def flush(self) -> bool:
        """Update with what there is."""
        if not self._waiting:
            return False
        self._bring_back()
        self._finish()
        return True

    def _finish(self) -> None:
        share = self._items / self._unit
        if share not in (0.0, 1.0):
            torch._foreach_div_([gradient for _, gradient in self._gathered], share)
        self._waiting, self._items, self._gathered = 0, 0.0, []
        self._step()

    def _bring_back(self) -> None:
        """Have parameters hold the gradients that were gathered here, and no others."""
        for parameter in self._parameters:
            parameter.grad = None
        for parameter, gradient in self._gathered:
            parameter.grad = gradient

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
        stepped = [one for one in self._optimizers if self._step_with(one)]
        if scaler is not None:
            scaler.update()
        for scheduler in self._schedules:
            if any(scheduler.optimizer is one for one in stepped):
                scheduler.step()
        for average in self._averages:
            average.update()

    def _step_with(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step an optimizer; False where a scaler skips it because gradients have overflowed."""
        if self._scaler is None:
            optimizer.step()
            return True
        stepped: list[Any] = []
        handle = optimizer.register_step_post_hook(lambda *_: stepped.append(True))
        try:
            self._scaler.step(optimizer)
        finally:
            handle.remove()
        return bool(stepped)


def _forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """What `zero_grad` does, without the profiler's mark, which takes twenty times as long."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:  # somebody's own
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def averages_of(models: Mapping[str, torch.nn.Module], decay: float) -> dict[str, Average]:
    """An average for each model; what models share is averaged with the first of them."""
    found: dict[str, Average] = {}
    seen: set[int] = set()
    for name, model in models.items():
        named = {key: one for key, one in model.named_parameters() if one.is_floating_point() and id(one) not in seen}
        seen |= {id(one) for one in named.values()}
        found[name] = Average(named, decay)
    return found


class Average:
    """An exponential average of a model's weights, swapped in for evaluation."""

    def __init__(self, named: Mapping[str, Tensor], decay: float, values: Sequence[Tensor] | None = None) -> None:
        self._decay, self._names, self._live = decay, list(named), list(named.values())
        self.values = [one.detach().clone() for one in self._live] if values is None else list(values)

    def of(self, parameters: Container[int]) -> Average:
        """The average of some of the parameters, by their `id`; its values are the same ones."""
        found = [one for one in zip(self._names, self._live, self.values) if id(one[1]) in parameters]
        return Average({name: live for name, live, _ in found}, self._decay, [value for _, _, value in found])

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
