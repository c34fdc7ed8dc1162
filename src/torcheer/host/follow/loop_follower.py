"""Follows a user's training loop by its model's passes.

Decides which passes to record and where the loop may pause.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from torcheer.capture.torch_state import tracing_state
from torcheer.host.follow.layer_probes import LayerProbes
from torcheer.host.follow.record_rate import Budget
from torcheer.host.state_sender import is_subscribed
from torcheer.tap.pass_counter import PassCounter
from torcheer.tap.probe_hooks import PassHook, ProbeHook, in_backward
from torcheer.tap.probes import entrances, is_called

_LEAST_IDLE_PASSES: Final = 4  # for fewer passes the switch does not pay
_POLL_SECS: Final = 0.2  # between two polls of the subscription and orders
_MOST_SKIPPED: Final = 1000  # passes

Boundary = Callable[[int, bool], bool]


class LoopFollower:
    """Calls `boundary(step, test)` before passes, and records those that are due.

    `boundary` may wait, and returns True if it must be called at every step. A step is a pass in training mode (in any
    mode, for a model that was never in training mode); passes in evaluation mode are tests. Without a subscription a
    pass costs a microsecond and is only counted.
    """

    def __init__(
        self, probes: LayerProbes, boundary: Boundary, *, counters: Callable[[], Mapping[str, Any]],
        step_of: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.probes, self._boundary, self._counters, self._step_of = probes, boundary, counters, step_of
        self.budget, self._host, self._model = Budget(), probes.host, probes.model
        self._hook = _BeginHook(self, self._model.training)
        self._reached = -1  # the step at which the hook's countdown ends
        self._entries, self._idle = list[Any](), list[Any]()
        self._by_optimizer, self._begun = not is_called(self._model), False
        self._may_use_counter = not self._by_optimizer
        self._paced_at, self._paced_step, self._pace = time.monotonic(), 0, 0.0  # steps a second
        self._thread, self._process, self.closed = 0, os.getpid(), False
        if self._by_optimizer:
            self._idle.append(register_optimizer_step_post_hook(self._stepped))
        elif not probes.is_described:
            probes.finder.record_next_call()
        self._attach_hook()

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._reached - self._hook.idle_passes

    @property
    def is_test(self) -> bool:
        """True if a pass would count as a test now."""
        return not self._model.training and not self._hook.in_any_mode

    # -- the hook ----------------------------------------------------------------------------------------------------

    def _attach_hook(self) -> None:
        """Count passes with the hook."""
        self._detach()
        places = [self._model] if is_called(self._model) else list(entrances(self._model))
        self._entries = [
            place.register_forward_pre_hook(self._hook, prepend=True, with_kwargs=True) for place in places
        ]

    def _start_counter(self) -> None:
        """Count passes with a cheaper wrapper, until the hook's countdown ends."""
        if self._hook.idle_passes >= _LEAST_IDLE_PASSES and self._may_use_counter and PassCounter.fits(self._model):
            self._detach()
            self._hook.counter = _TestAwareCounter(self._model, cast(PassHook, self._hook), self._attach_hook)

    def _detach(self) -> None:
        counter, self._hook.counter = self._hook.counter, None
        if counter is not None:
            counter.end()
        entries, self._entries = self._entries, []
        for handle in entries:
            handle.remove()

    # -- passes ------------------------------------------------------------------------------------------------------

    def begin_pass(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        """Handle the begin of a pass that the countdown does not skip."""
        if self.closed or self._process != os.getpid() or tracing_state() or not self._is_our_thread():
            return
        if self.probes.in_pass and not self._interrupted():
            return  # a recursive call of the model
        test = not module.training and not self._hook.in_any_mode
        if self._by_optimizer and not test:
            if self._begun:
                return
            self._begun = True
        self._finish()
        step = self.step if test else self._next_step()
        self._skip_passes(step, 0)
        always = self._boundary(max(step, 0), test)  # may raise KeyboardInterrupt while it waits; nothing else raises
        now = time.monotonic()
        self._record(max(step, 0), test, now, arguments, keywords)
        if not test and not always and not self.probes.in_pass:
            self._skip_passes(step, self._steps_to_skip(step, now))
            self._may_use_counter = self._may_use_counter and module is self._model  # not a replica on another GPU
            self._start_counter()

    def _record(self, step: int, test: bool, now: float, arguments: Any, keywords: Any) -> None:
        probes, due = self.probes, self.budget.due(now, self._host.wants, test)
        call_arguments = (None, None) if self._by_optimizer else (arguments, keywords)
        if not probes.is_described:
            probes.observe(*call_arguments)
        elif due:
            probes.begin(step, self._counters(), test, arguments=call_arguments[0], keywords=call_arguments[1])
        else:
            return
        if not probes.in_pass:
            self._finish()  # the state was dropped, or only weights are recorded
        elif not self._by_optimizer:
            probes.add_handle(self._model.register_forward_hook(_EndHook(self), always_call=True))

    def end_pass(self) -> None:
        """Handle the end of a recorded pass, whose gradients may still arrive."""
        waits = self.probes.waits_for_gradients
        self.probes.end_pass()
        if not waits:
            self._finish()

    def _finish(self) -> None:
        if self.probes.busy:
            self.budget.spent(self.probes.finish(), time.monotonic())

    def _next_step(self) -> int:
        if self._step_of is not None:
            try:
                return int(self._step_of())
            except Exception as error:
                self._step_of = None
                self._host.alert(f"step_of failed, steps are counted from here on: {type(error).__name__}: {error}")
        return self.step + 1

    def _is_our_thread(self) -> bool:
        """True in the thread of the first pass; passes in other threads are ignored."""
        self._thread = self._thread or threading.get_ident()
        return self._thread == threading.get_ident()

    def _interrupted(self) -> bool:
        """True if the recorded pass ended without its hook (Ctrl-C).

        False if the model calls itself.
        """
        if self._by_optimizer:
            return False
        frame, calls = sys._getframe(), 0
        while frame is not None and calls < 2:
            calls += frame.f_code is _CALL and frame.f_locals.get("self") is self._model
            frame = frame.f_back  # type: ignore[assignment]
        return calls < 2

    # -- skipping passes ---------------------------------------------------------------------------------------------

    def _skip_passes(self, step: int, passes: int) -> None:
        """Only count the next `passes` passes after this step."""
        self._reached, self._hook.idle_passes = step + passes, passes

    def _steps_to_skip(self, step: int, now: float) -> int:
        """How many steps may be skipped before the next check."""
        wants = self._host.wants
        if (is_subscribed(wants) and wants.train.unit != "auto") or self._by_optimizer or not self.probes.is_described:
            return 0
        if now - self._paced_at >= 0.01:
            pace = (step - self._paced_step) / (now - self._paced_at)
            self._pace = min(pace, 2 * self._pace + 20)  # damped: a sudden change may be noise
            self._paced_at, self._paced_step = now, step
        secs = _POLL_SECS
        if is_subscribed(wants):
            secs = min(max(self.budget.next_at - now, 0.0) * 0.8, secs)
        return int(min(secs * self._pace, _MOST_SKIPPED))

    def _stepped(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        """End a step at an optimizer's step, for a model whose own call runs no hooks."""
        if not is_dynamo_compiling() and self._begun:
            self._begun = False
            self._finish()

    def close(self) -> None:
        """Remove every hook."""
        self.closed = True
        self._detach()
        for handle in self._idle:
            handle.remove()
        self.probes.close()


_CALL = nn.Module._call_impl.__code__


class _BeginHook(ProbeHook):
    """Permanent pre-hook on the model: counts down the passes to skip, at nearly no cost."""

    __slots__ = ("_follower", "counter", "idle_passes", "in_any_mode")

    def __init__(self, follower: LoopFollower, only_training: bool) -> None:
        self._follower, self.in_any_mode, self.idle_passes = follower, not only_training, 0
        self.counter: PassCounter | None = None

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if is_dynamo_compiling() or in_backward() >= 0:
            return
        if module.training:
            self.in_any_mode = False
        if self.idle_passes > 0 and (module.training or self.in_any_mode):
            self.idle_passes -= 1
        else:
            self._follower.begin_pass(module, arguments, keywords)

    def passed(self) -> None:
        """Handle the end of a pass that `_TestAwareCounter` began."""
        _EndHook(self._follower)(self._follower._model, (), None)


class _TestAwareCounter(PassCounter):
    """Counts steps in place of the hook.

    A test, of which each pass may be recorded, wakes the hook.
    """

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        hook: Any = self._hook
        if self._model.training or hook.in_any_mode or hook.counter is not self or is_dynamo_compiling():
            return PassCounter.__call__(self, *arguments, **keywords)
        self._resume()
        hook(self._model, arguments, keywords)
        try:
            return self.__wrapped__(*arguments, **keywords)
        finally:
            hook.passed()  # torch is already past the point where it calls hooks


class _EndHook(ProbeHook):
    """Forward hook on the model, while a pass is recorded."""

    __slots__ = ("_follower",)

    def __init__(self, follower: LoopFollower) -> None:
        self._follower = follower

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        try:
            self._follower.end_pass()
        except Exception as error:
            self._follower.probes.drop_layer("(the end of a pass)", error)
