"""The probes of a watch: they follow a model's steps and sample those that are due."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torcheer.samples import Alert
from torcheer.tap.counting.steps import Call, Following, Wake, steps_of
from torcheer.tap.layer_outputs import LayerOutputs
from torcheer.tap.module_selection import ModuleSelection, PartsInPlace, Places
from torcheer.tap.sample_sender import Sender
from torcheer.tap.step_schedule import Schedule
from torcheer.tap.step_timing import Timing
from torcheer.tap.weight_updates import WeightTracker
from torcheer.terminal import first_names


class Probes:
    """Samples outputs, gradients and weights of a model at the steps of a schedule (`steps.Follower`)."""

    sees_tests, uses_optimizers = False, True

    def __init__(
        self,
        model: nn.Module,
        selection: ModuleSelection,
        what: Collection[str],
        sender: Sender,
        *,
        schedule: Schedule,
        on_boundary: Callable[[], None],
    ) -> None:
        self._model, self._sender, self._schedule, self._on_boundary = model, sender, schedule, on_boundary
        gradient_names = selection.hidden_parameters if "grad" in what else ()
        steps = self._steps = steps_of(model)
        self._outputs = LayerOutputs(selection.modules, what, sender, model)
        self._weights = WeightTracker(selection.parameters, what, sender, steps.optimizers, gradient_names)
        self._timing, self._parts = Timing(sender, model), PartsInPlace(model)
        self._following: Following | None = None
        self._updates_pending = False  # whether the optimizer's next step has values to send
        self.watched_step, self.watched_count = -1, 0
        self.last_look: int | None = None  # the step that was watched before that one
        self.rules: Collection[str] = ()  # that judge in the watching process
        self.run: Path | None = None
        self.on_places: Callable[[Places], None] = lambda places: None  # hears where modules are, after their pass

    def attach(self, optimizer: Optimizer | None = None, step_of: Callable[[], int] | None = None) -> None:
        """Start to follow the steps: those of `optimizer`, with the numbers of `step_of()`, where they are given."""
        self._following = self._steps.follow(self, self._sender.report, optimizer=optimizer, step_of=step_of)

    # -- where the loop is -------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._following.step if self._following is not None else -1

    @property
    def current_step(self) -> int:
        """The step that began last, or the number of the first one where none has begun."""
        if self.step < 0:
            self._steps.number.read(self._steps.count)
        return max(self.step, 0)

    @property
    def count(self) -> int:
        """Number of steps since the probes are attached."""
        return self._following.count if self._following is not None else 0

    @property
    def only_training(self) -> bool:
        """Whether passes in evaluation mode are ignored: from the first pass in training mode on."""
        return self._steps.only_training

    @property
    def is_watching(self) -> bool:
        """Whether the step that began last is watched."""
        return self.step >= 0 and self.step == self.watched_step

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._following is not None and self._following.is_closed

    @property
    def awaits_updates(self) -> bool:
        """Whether weights of the watched step still wait for an optimizer."""
        return self._weights.has_pending

    def wake(self) -> None:
        """Reach a boundary with the next pass, watched or not."""
        if self._following is not None:
            self._steps.wake(self._following)

    # -- a follower of the steps -------------------------------------------------------------------------------------

    @property
    def in_pass(self) -> bool:
        """Whether the pass that runs is watched."""
        return self._outputs.is_open

    @property
    def awaits_optimizer(self) -> bool:
        """Whether the next step of an optimizer has values to send."""
        return self._updates_pending or self._weights.awaits_step

    def settle(self) -> None:
        """Send what the last watched step left to be sent, and remove its hooks."""
        self._timing.settle()
        self._outputs.release()
        self._weights.settle()
        self._sender.harvest()

    def reach_boundary(self, step: int) -> None:
        """Hear what the watching process says; raises where the user asked to stop the run."""
        self._on_boundary()

    def begin_step(self, step: int, call: Call | None, now_secs: float) -> Wake:
        """Watch a step that is due."""
        is_due = self._schedule.due(step, now_secs)
        if is_due:
            self._watch(step)
        has_work = is_due or self._weights.needs_settling or self._sender.is_busy
        idle_steps = 0 if has_work else self._steps.pace.idle_steps(*self._schedule.idle_for(step, now_secs))
        return Wake(idle_steps, self._schedule.next_step)

    def begin_test(self, step: int, call: Call | None, now_secs: float) -> None:
        """Ignore a pass in evaluation mode; the loop does not wait for data meanwhile."""
        self._timing.discard()

    def hear(self, alert: Alert, run: Path | None) -> None:
        """Ignore what others find."""

    def announce(self, alert: Alert, run: Path | None) -> None:
        """Tell all who follow the model what was found; `run`: in whose log it stands."""
        self._steps.announce(alert, run)

    def _watch(self, step: int) -> None:
        self.last_look = self.watched_step if self.watched_count else None
        self.watched_step, self._updates_pending = step, True
        self.watched_count += 1
        self._timing.begin(step, next(self._model.parameters(), _NO_PARAMETER).device)
        self._drop_replaced()
        self._outputs.on_gradient = self._steps.end_pass if self._steps.by_optimizer else None
        self._outputs.begin(step)
        self._sender.begin()
        self._weights.begin(step)

    def _drop_replaced(self) -> None:
        """Stop watching layers and weights that were replaced: their values are no longer the model's."""
        module_ids, orphans = self._parts.check()
        if removed := [*self._outputs.forget(module_ids), *self._weights.forget(orphans)]:
            self._sender.report(
                f"{first_names(removed, 3)}: no longer part of the model; what is "
                "there instead is not watched. Begin another watch"
            )

    def end_pass(self) -> None:
        """Take the hooks of the watched pass off the modules."""
        self._outputs.end()
        if self._outputs.new_places:
            places, self._outputs.new_places = self._outputs.new_places, {}
            self.on_places(places)
        if self._timing.marks_pass:
            self._timing.passed()

    def optimizer_begins(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Send the gradients of the weights."""
        self._weights.before_step(optimizer, arguments, keywords)

    def optimizer_stepped(self, optimizer: Optimizer, counts: bool) -> None:
        """Send the updates of the weights."""
        if self._updates_pending and (self._weights.after_step(optimizer) or counts):
            self._updates_pending = self._weights.has_pending
        if counts:
            self._timing.stepped()

    def close(self) -> None:
        """Remove every hook; send what is pending."""
        if self._following is None:
            return
        with self._sender.guard("the last step"):
            if self._steps.process == os.getpid() and not self.closed:
                self._outputs.end()
                self._weights.settle()
                self._sender.harvest(wait=True)
            self._outputs.close()
            self._weights.release()
        self._following.close()


_NO_PARAMETER = torch.empty(0)
