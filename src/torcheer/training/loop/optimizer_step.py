"""One update: backward from the weighted sum of the losses, clip, step each optimizer once."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.training.parallel.heartbeats import BACKWARD, FORWARD, HEARTBEAT, OPTIMIZER
from torcheer.training.parallel.sharded_tensors import is_sharded, like_live, local_part
from torcheer.training.session_parts import Clip, Schedule
from torcheer.training.simple_session import lookup

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner
    from torcheer.training.session import Session


class Update:
    """Backward pass, clipping and optimizer steps of one pipeline."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        clips: Sequence[tuple[Clip, list[Tensor]]] = (),
        schedules: Sequence[Schedule] = (),
        averages: Sequence[WeightAverage] = (),
        scaler: Any = None,
        accumulate: int = 1,
        only: Sequence[Tensor] | None = None,
    ) -> None:
        self._optimizers, self._clips, self._averages = list(optimizers), list(clips), list(averages)
        self._schedules = [schedule.scheduler for schedule in schedules if schedule.every == "step"]
        self._scaler, self._accumulate = scaler, accumulate
        self._pending, self._items, self._unit = 0, 0.0, 1.0
        self.last_loss: Tensor | None = None  # of the newest pending batch
        groups = (group for optimizer in optimizers for group in optimizer.param_groups)
        # Without duplicates: two optimizers may share a parameter.
        self._parameters: list[Tensor] = list(dict.fromkeys(value for group in groups for value in group["params"]))
        # Accumulated here, not on the parameters: other pipelines may share them.
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self._plain = accumulate == 1 and scaler is None
        # Only these receive gradients: a parameter frozen here may be accumulating gradients in another pipeline.
        self._only = None if only is None else list(only)

    @property
    def parameters(self) -> list[Tensor]:
        """What the optimizers change, each once."""
        return self._parameters

    @property
    def is_pending(self) -> bool:
        """True while accumulated gradients wait for more batches."""
        return self._pending > 0

    def begin(self) -> None:
        """Prepare a forward pass: free old gradients before new activations need memory."""
        HEARTBEAT.enter(FORWARD)
        if self._plain:
            for optimizer in self._optimizers:
                if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:  # overridden
                    optimizer.zero_grad()
                    continue
                for group in optimizer.param_groups:  # as `zero_grad`, whose profiler record takes 20 times as long
                    for parameter in group["params"]:
                        parameter.grad = None

    def backward(self, loss: Tensor, items: float) -> bool:
        """Backpropagate one batch's loss; return whether the weights were updated."""
        HEARTBEAT.enter(BACKWARD)
        if self._plain:
            loss.backward(inputs=self._only)
            self._step()
            return True
        if not self._pending:
            self._unit = items or 1.0
        # A sum over items, divided by their total at the end: batches may differ in size.
        scaled = loss if items == self._unit else loss * (items / self._unit)
        self._restore_gradients()
        (self._scaler.scale(scaled) if self._scaler is not None else scaled).backward(inputs=self._only)
        self._gradients = [(value, value.grad) for value in self._parameters if value.grad is not None]
        self._pending += 1
        self._items += items
        self.last_loss = loss.detach()
        if self._pending < self._accumulate:
            return False
        self._finish()
        return True

    def flush(self) -> bool:
        """Update with the pending gradients; return whether there were any."""
        if not self._pending:
            return False
        self._restore_gradients()
        self._finish()
        return True

    def _finish(self) -> None:
        share = self._items / self._unit
        if share not in (0.0, 1.0):
            torch._foreach_div_([gradient for _, gradient in self._gradients], share)
        self._pending, self._items, self._gradients = 0, 0.0, []
        self._step()

    def _restore_gradients(self) -> None:
        """Set the parameters' gradients to those accumulated here, and no others."""
        for parameter in self._parameters:
            parameter.grad = None
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def _step(self) -> None:
        HEARTBEAT.enter(OPTIMIZER)
        scaler = self._scaler
        if self._clips and scaler is not None:
            for optimizer in self._optimizers:
                scaler.unscale_(optimizer)
        for clip, parameters in self._clips:
            if clip.value is not None:
                torch.nn.utils.clip_grad_value_(parameters, clip.value)
            if clip.norm is not None:
                self._clip_norm(parameters, clip.norm)
        stepped = self._optimizers
        if scaler is None:
            for optimizer in stepped:
                optimizer.step()
        else:
            stepped = [optimizer for optimizer in stepped if self._step_scaled(optimizer)]
            scaler.update()
        for scheduler in self._schedules:
            if any(scheduler.optimizer is optimizer for optimizer in stepped):
                scheduler.step()
        for average in self._averages:
            average.update()

    def _clip_norm(self, parameters: list[Tensor], most: float) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, most)

    def _step_scaled(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step an optimizer; return False where the scaler skips it because gradients overflowed."""
        stepped: list[Any] = []
        handle = optimizer.register_step_post_hook(lambda *_: stepped.append(True))
        try:
            self._scaler.step(optimizer)
        finally:
            handle.remove()
        return bool(stepped)


def make_averages(models: Mapping[str, torch.nn.Module], decay: float) -> dict[str, WeightAverage]:
    """Make an average for each model; parameters that models share belong to the first of them."""
    averages: dict[str, WeightAverage] = {}
    averaged: set[int] = set()
    for name, model in models.items():
        parameters = {
            key: parameter
            for key, parameter in model.named_parameters()
            if parameter.is_floating_point() and id(parameter) not in averaged
        }
        averaged |= {id(parameter) for parameter in parameters.values()}
        averages[name] = WeightAverage(parameters, decay)
    return averages


class WeightAverage:
    """Exponential moving average of a model's weights, swapped in for evaluation."""

    def __init__(self, parameters: Mapping[str, Tensor], decay: float, values: Sequence[Tensor] | None = None) -> None:
        self._decay, self._names, self._live = decay, list(parameters), list(parameters.values())
        self.values = [parameter.detach().clone() for parameter in self._live] if values is None else list(values)
        self._is_sharded = any(map(is_sharded, self._live))

    def subset(self, parameters: Container[int]) -> WeightAverage:
        """Return the average of some of the parameters, given by `id`; it shares the values."""
        entries = [entry for entry in zip(self._names, self._live, self.values) if id(entry[1]) in parameters]
        return WeightAverage({name: live for name, live, _ in entries}, self._decay, [value for _, _, value in entries])

    @torch.no_grad()
    def update(self) -> None:
        values, live = self.values, [parameter.detach() for parameter in self._live]
        if self._is_sharded:
            values, live = list(map(local_part, values)), list(map(local_part, live))
        torch._foreach_lerp_(values, live, 1 - self._decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average; a second call undoes the first."""
        for live, value in zip(self._live, self.values):
            copy = live.detach().clone()
            live.copy_(value)
            value.copy_(copy)

    def state(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self.values))

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, value in zip(self._names, self.values):
            value.copy_(like_live(state[name], value))


def make_update(
    session: Session, runner: PipelineRunner, kind: type[Update] = Update, *, is_trial: bool = False
) -> Update:
    """Return the update of a pipeline: its optimizers, and what of the options concerns them.

    On trial, schedules and averages of weights stay where they are.
    """
    nodes = session.nodes_of(runner.name)
    names = list(dict.fromkeys(node.optimizer for node in nodes if node.optimizer is not None))
    if not names:
        raise BadArgument(f"pipeline {runner.name!r} trains nothing: none of its nodes names an optimizer")
    with suppress(TypeError):  # a stream has no length
        if not len(runner) and not session.changes_data:  # else it may have some when an epoch begins
            raise BadArgument(f"pipeline {runner.name!r} has no batch to train with: its data is less than one")
    if session.options.accumulate > 1 and len({measure.counts_by for _, measure, _ in runner.losses}) > 1:
        raise BadArgument(
            f"the losses of pipeline {runner.name!r} count different items: they cannot be accumulated together"
        )
    trained = {node.model for node in nodes if node.optimizer is not None}
    optimizers = [lookup(session.optimizers, name, "optimizers") for name in names]
    learnable = {
        id(parameter)
        for node in nodes
        for parameter in session.models[node.model].parameters()
        if parameter.requires_grad
    }
    frozen = learnable - {id(parameter) for name in trained for parameter in session.models[name].parameters()}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    # An optimizer may also have parameters of other models.
    optimized = [parameter for group in groups for parameter in group["params"] if id(parameter) not in frozen]
    optimized_ids = {id(parameter) for parameter in optimized}
    return kind(
        optimizers,
        clips=[
            (
                clip,
                [value for value in session.models[clip.model].parameters() if id(value) in optimized_ids],
            )
            for clip in session.clips
            if clip.model in trained
        ],
        only=None if learnable <= optimized_ids else [value for value in optimized if value.requires_grad],
        schedules=[schedule for name, schedule in session.schedules.items() if name in names and not is_trial],
        averages=[
            part
            for average in session.averages.values()
            if not is_trial and (part := average.subset(optimized_ids)).values
        ],
        scaler=session.scalers.get(runner.name),
        accumulate=session.options.accumulate,
    )
