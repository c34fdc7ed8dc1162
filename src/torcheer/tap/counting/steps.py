"""The steps of a model: one count, one hook and one pace for all who follow them.

A step is a pass through the model in training mode (in any mode, until it was first in training mode). Where the
model itself is never called (Lightning's `training_step`, a ModuleDict), or an optimizer was named, it is a step of
the optimizer, which begins with its first pass. Passes that checkpointing computes again, that torch traces or
compiles, or in which the model calls itself, are none. `step_of()` renumbers the steps for all who follow.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torcheer.models import unwrapped
from torcheer.samples import Alert
from torcheer.tap.counting.model_optimizers import ModelOptimizers, has_closure
from torcheer.tap.counting.step_number import StepNumber
from torcheer.tap.pass_counter import PassGate
from torcheer.tap.probe_hooks import calls_of
from torcheer.tap.step_schedule import Pace
from torcheer.tap.tensor_copies import ErrorGuard, Report

_MEASURED_SECS = 0.01  # at least, between two measurements of the pace
_UNSEEN = (
    "the model's own call is not seen, as it runs inside compiled code or is not called itself: steps are "
    "those of the optimizer, outputs and gradients may be missing. Watch the compiled model instead"
)


class Wake(NamedTuple):
    """When a follower has work again: after so many idle steps, or at a step of this number, if that comes first."""

    idle_steps: int
    step: float = math.inf


Call = tuple[Any, Any]  # the positional and keyword arguments of the model's call


class Follower(Protocol):
    """What follows a model's steps: called at those that it wants to be woken for."""

    sees_tests: bool  # whether passes in evaluation mode matter to it
    uses_optimizers: bool  # whether it needs `optimizer_begins` and `optimizer_stepped`

    @property
    def rules(self) -> Collection[str]:
        """The rules that judge what it sees; a page has none."""

    @property
    def run(self) -> Path | None:
        """The folder that its user has named for what it finds."""

    @property
    def in_pass(self) -> bool:
        """Whether it listens to the pass that runs."""

    @property
    def awaits_optimizer(self) -> bool:
        """Whether the next step of an optimizer has values for it."""

    def settle(self) -> None:
        """Finish the step before, as another one begins."""

    def reach_boundary(self, step: int) -> None:
        """Do what belongs between two steps; may wait, or end the loop by raising."""

    def begin_step(self, step: int, call: Call | None, now_secs: float) -> Wake:
        """Begin a step; `call` where the model's own call begins it."""

    def begin_test(self, step: int, call: Call | None, now_secs: float) -> None:
        """Begin a pass in evaluation mode; may wait, or end the loop by raising."""

    def end_pass(self) -> None:
        """End the pass that was listened to."""

    def optimizer_begins(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Handle an optimizer that is about to step."""

    def optimizer_stepped(self, optimizer: Optimizer, counts: bool) -> None:
        """Handle an optimizer that has stepped; `counts`: this ends a step of the model."""

    def hear(self, alert: Alert, run: Path | None) -> None:
        """Take an alert of another follower; `run`: in whose log it stands."""


class Following:
    """A follower's place among the steps of a model, until `close`."""

    def __init__(self, steps: Steps, follower: Follower, report: Report) -> None:
        self.steps, self.follower, self.report = steps, follower, report
        self.wake_count, self.wake_step = steps.count + 1, math.inf  # the next pass
        self._first_count, self._end = steps.count, None
        # Made once: they are entered at every step.
        self.step_guard, self.end_guard = ErrorGuard(report, "a step"), ErrorGuard(report, "the end of a pass")
        self.before_guard = ErrorGuard(report, "the gradients of the weights")
        self.after_guard = ErrorGuard(report, "the updates of the weights")

    _end: tuple[int, int] | None  # step and count at its end

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self.steps.step if self._end is None else self._end[0]

    @property
    def count(self) -> int:
        """Number of steps since it follows."""
        return (self.steps.count if self._end is None else self._end[1]) - self._first_count

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._end is not None

    def close(self) -> None:
        """Follow no further; the last one leaves nothing on the model."""
        if self._end is None:
            self._end = (self.steps.step, self.steps.count)
            self.steps.leave(self)


class Steps:
    """Counts the steps of a model and wakes its followers at those they want.

    In between, one cheap hook, or an even cheaper counter, only counts down.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.pace, self.number = model, Pace(), StepNumber()
        self.optimizers = ModelOptimizers(model)
        self._gate = PassGate(model, self.begin_pass, self.end_pass)
        self._hook = self._gate.hook
        self._followings: tuple[Following, ...] = ()
        self._reached, self._woken_step = -1, -1  # the step at which the hook's idle passes end; of the last `_wake`
        self.by_optimizer = not self._gate.is_called
        self._begun = False  # where optimizer steps are counted: whether this step has had its first pass
        self._running: Optimizer | None = None  # whose step is in progress, with nothing to do but count it
        self._optimizer_hooks, self._end_hook = list[Any](), list[Any]()
        self._uses_optimizers = True  # whether the optimizer hooks have anything to do
        self.process = os.getpid()

    # -- following ---------------------------------------------------------------------------------------------------

    def follow(
        self, follower: Follower, report: Report, *, optimizer: Optimizer | None = None,
        step_of: Callable[[], int] | None = None,
    ) -> Following:  # fmt: skip
        """Wake a follower at the next pass, and then when it says.

        The `optimizer` whose steps are to be counted and the loop's own numbers, `step_of()`, hold for all followers.
        """
        if optimizer is not None:
            self.by_optimizer, self.optimizers.counted = True, optimizer
        if step_of is not None:
            self.number.use(step_of, report)
        following = Following(self, follower, report)
        self._followings += (following,)
        self._hook.sees_tests = self._hook.sees_tests or follower.sees_tests
        self._set_counting()
        if self.process == os.getpid():
            self._gate.use_hook()
            self._set_idle(0)
            self._uses_optimizers = self._uses_optimizers or self.step < 0
        # They stay as long as a follower: torch does not allow hooks to be added or removed while it calls them.
        # And on all optimizers: besides the one whose steps count, others may update weights of the model.
        if (follower.uses_optimizers or self.by_optimizer) and not self._optimizer_hooks:
            self._optimizer_hooks = [
                register_optimizer_step_pre_hook(self._optimizer_begins),
                register_optimizer_step_post_hook(self._optimizer_stepped),
            ]
        return following

    def wake(self, following: Following) -> None:
        """Wake a follower at the next pass, whatever it said."""
        if self.process == os.getpid() and not following.is_closed:
            following.wake_count = 0
            self._gate.use_hook()
            self._set_idle(0)

    def leave(self, following: Following) -> None:
        """Forget a follower; with the last one, leave the model as it was."""
        self._followings = tuple(other for other in self._followings if other is not following)
        followers = [other.follower for other in self._followings]
        self._hook.sees_tests = any(follower.sees_tests for follower in followers)
        self._update_optimizers()
        if not followers:
            self._gate.close()
            self._remove_end_hook()
            _STEPS.pop(id(self.model), None)
        if not (followers and (self.by_optimizer or any(follower.uses_optimizers for follower in followers))):
            hooks, self._optimizer_hooks = self._optimizer_hooks, []
            for handle in hooks:
                handle.remove()

    def announce(self, alert: Alert, run: Path | None) -> None:
        """Pass on what a follower has found to all who follow the model; `run`: in whose log it stands."""
        for follower in followers_of(self.model):
            follower.hear(alert, run)

    # -- counting ----------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of the step that began last; -1 before the first."""
        return self.number.at(self._reached - self._hook.idle_passes + 1)  # `count`, asked at every logged row

    @property
    def count(self) -> int:
        """Number of steps so far."""
        return self._reached - self._hook.idle_passes + 1

    @property
    def only_training(self) -> bool:
        """Whether passes in evaluation mode are tests: from the first pass in training mode on."""
        return not self._hook.in_any_mode

    def _set_idle(self, passes: int) -> None:
        """Only count the next `passes` passes."""
        self._reached, self._hook.idle_passes = self.count - 1 + passes, passes

    def _set_counting(self) -> None:
        is_plain = not self.by_optimizer and self.number.step_of is None
        self._hook.count = None if is_plain else self._count_pass

    def _count_pass(self) -> bool:
        """Count a pass that is not by itself a step (several per step, or `step_of`); False: it was not an idle one."""
        if self.by_optimizer and self._begun:
            return True
        is_idle, has_counter = True, self._hook.counter is not None
        if self.number.step_of is not None:
            previous = self.number.last
            self.number.read(self.count + 1)
            # The counter cannot wake anybody for the pass at which it hands over to the hook. Models that take turns
            # have every second number, or fewer.
            stride = max(self.number.last - previous, 1) if has_counter else 0
            is_idle = previous <= self.number.last < self._next_wake_step - stride
        if is_idle or has_counter:  # else `begin_pass` counts it
            self._begun = self.by_optimizer
            self._hook.idle_passes -= 1
        else:
            self.number.is_read = True
        return is_idle

    @property
    def _next_wake_step(self) -> float:
        return min((following.wake_step for following in self._followings), default=math.inf)

    # -- passes ------------------------------------------------------------------------------------------------------

    def begin_pass(self, module: nn.Module, arguments: Any = None, keywords: Any = None) -> None:
        """Handle a pass that is not one of the idle passes, which need no work."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return
        is_test = self.only_training and not module.training
        if self._is_inside(is_test):
            return
        is_own_call = module is self.model and self._gate.is_called and arguments is not None
        call = (arguments, keywords) if is_own_call else None
        if is_test:
            self._begin_test(call)
            return
        self._begun = self.by_optimizer
        self._reached, self._hook.idle_passes = self.count, 0
        self.number.read(self.count)
        if self.process == os.getpid():  # a forked worker has the hook, not the followers
            self._wake(call)
            self._gate.use_counter(module)

    def _is_inside(self, is_test: bool) -> bool:
        """Whether a pass is part of the one, or of the step, that runs; one that was aborted (Ctrl-C) is ended."""
        if self.by_optimizer and self._begun and not is_test:
            return True
        if not self._in_pass:
            return False
        if (self.by_optimizer and is_test) or (self._gate.is_called and calls_of(self.model) > 1):
            return True
        self.end_pass()
        return False

    @property
    def _in_pass(self) -> bool:
        for following in self._followings:
            if following.follower.in_pass:
                return True
        return False

    def _wake(self, call: Call | None) -> None:
        now_secs, step, count = time.monotonic(), self.step, self.count
        if now_secs - self.pace.measured_at >= _MEASURED_SECS:
            self.pace.measure(count, now_secs)
        due = self._due(step, count)
        for following in due:  # before anybody waits
            with following.step_guard, torch._C.DisableTorchFunction():
                following.follower.settle()
        for following in due:
            following.follower.reach_boundary(step)
        now_secs = time.monotonic()
        for following in due:
            following.wake_count, following.wake_step = count + 1, -math.inf
            with following.step_guard, torch._C.DisableTorchFunction():
                wake = following.follower.begin_step(step, call, now_secs)
                following.wake_count, following.wake_step = count + 1 + wake.idle_steps, wake.step
        self._attach_end()
        self._set_idle(min([following.wake_count for following in self._followings], default=count + 1) - count - 1)
        self._update_optimizers()

    def _due(self, step: int, count: int) -> tuple[Following, ...]:
        """The followers that want to be woken at a step; all of them where its numbers start over."""
        starts_over, self._woken_step = step < self._woken_step, step
        if starts_over or len(self._followings) == 1:
            return self._followings
        at_step = step if self.number.step_of is not None else -math.inf
        return tuple(
            following
            for following in self._followings
            if following.wake_count <= count or following.wake_step <= at_step
        )

    def _begin_test(self, call: Call | None) -> None:
        if self.process != os.getpid():
            return
        now_secs = time.monotonic()
        for following in self._followings:
            following.follower.begin_test(self.step, call, now_secs)
            if following.follower.sees_tests:
                following.wake_count = 0  # what a test left is settled by the next step
                self._set_idle(0)
        self._attach_end()

    def _attach_end(self) -> None:
        if self._gate.is_called and not self._end_hook and self._in_pass:
            self._end_hook = [self._gate.end_with(self.end_pass)]

    def end_pass(self) -> None:
        """End the pass for all who listen to it."""
        self._remove_end_hook()
        for following in self._followings:
            if following.follower.in_pass:
                with following.end_guard:
                    following.follower.end_pass()

    def _remove_end_hook(self) -> None:
        hooks, self._end_hook = self._end_hook, []
        for handle in hooks:
            handle.remove()

    # -- optimizers --------------------------------------------------------------------------------------------------

    def _update_optimizers(self) -> None:
        self._uses_optimizers = self.by_optimizer and bool(self._followings)
        for following in self._followings:
            self._uses_optimizers = self._uses_optimizers or following.follower.awaits_optimizer

    def _optimizer_begins(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._uses_optimizers or is_dynamo_compiling():
            return  # nearly always
        idle = self._begun and not any(following.follower.awaits_optimizer for following in self._followings)
        if idle and (self._running is None or self._running is optimizer):
            self._running = optimizer
            return  # nearly always, where its steps are counted
        with self._followings[0].step_guard:
            if not self.optimizers.is_nested_step():
                self._running = None  # its step raised
            if self.by_optimizer or self.step < 0:
                self._count_step(optimizer, arguments, keywords)
        for following in self._followings:
            with following.before_guard:
                following.follower.optimizer_begins(optimizer, arguments, keywords)

    def _count_step(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Begin a step if none has begun: its pass was not seen, or is yet to come in a closure."""
        if self._begun or not self.optimizers.counts(optimizer):
            return
        if not self.by_optimizer:
            if has_closure(arguments, keywords):
                return
            self.by_optimizer = True
            for following in self._followings:
                following.report(_UNSEEN)
            self._set_counting()
        if self._hook.idle_passes <= 0 or not self._count_pass():
            self.begin_pass(_IN_TRAINING if self.only_training else self.model)

    def _optimizer_stepped(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._uses_optimizers or is_dynamo_compiling():
            return
        if self._running is not optimizer and self.optimizers.is_nested_step():
            return
        counts, self._running = self.optimizers.counts(optimizer), None
        for following in self._followings:
            with following.after_guard:
                following.follower.optimizer_stepped(optimizer, counts)
        self._update_optimizers()
        if counts:
            self._begun = False
            if self.by_optimizer:
                self.end_pass()


_STEPS: weakref.WeakValueDictionary[int, Steps] = weakref.WeakValueDictionary()  # by the model's id
_IN_TRAINING = nn.Identity()  # stands for a model in training mode


def steps_of(model: nn.Module) -> Steps:
    """The steps of a model, which all who follow it share."""
    steps = _STEPS.get(id(model))
    if steps is None or steps.model is not model or steps.process != os.getpid():
        steps = _STEPS[id(model)] = Steps(model)
    return steps


def followers_of(model: nn.Module) -> list[Follower]:
    """All who follow a model, or a wrapper of it (DDP, compiled), which has steps of its own."""
    same = [steps for steps in list(_STEPS.values()) if unwrapped(steps.model) is unwrapped(model)]
    return [following.follower for steps in same if steps.process == os.getpid() for following in steps._followings]
