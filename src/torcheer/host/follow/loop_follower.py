"""Any training loop, followed by the passes of its model: which is looked at, and where the loop may be held."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from torcheer.host.follow.layer_probes import Probing
from torcheer.host.follow.record_rate import Budget
from torcheer.host.state_sender import looks
from torcheer.tap.pass_counter import Nap
from torcheer.tap.probe_hooks import Called, ProbeHook, in_backward
from torcheer.tap.probes import entrances, is_called

_NAP_PASSES: Final = 4  # for fewer it is not worth the change
_LOOK_SECS: Final = 0.2  # between two looks at what is asked for
_MOST_QUIET: Final = 1000  # passes

Boundary = Callable[[int, bool], bool]


class Following:
    """Calls `boundary(step, test)` before passes, which may wait and says whether it has to be asked at every step.

    A step is a pass in training mode (in any mode, for a model that was never trained); passes in evaluation mode
    are tests. While nobody looks a pass costs a microsecond and is only counted.
    """

    def __init__(
        self, probing: Probing, boundary: Boundary, *, counters: Callable[[], Mapping[str, Any]],
        step_of: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.probing, self._boundary, self._counters, self._step_of = probing, boundary, counters, step_of
        self.budget, self._host, self._model = Budget(), probing.host, probing.model
        self._hook = _Begins(self, self._model.training)
        self._reached = -1  # the step at which the hook's quiet ends
        self._entries, self._idle = list[Any](), list[Any]()
        self._by_optimizer, self._begun = not is_called(self._model), False
        self._naps = not self._by_optimizer
        self._paced_at, self._paced_step, self._pace = time.monotonic(), 0, 0.0  # steps a second
        self._thread, self._process, self.closed = 0, os.getpid(), False
        if self._by_optimizer:
            self._idle.append(register_optimizer_step_post_hook(self._stepped))
        self._wake()

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._reached - self._hook.quiet

    @property
    def is_test(self) -> bool:
        """Whether a pass would be a test now."""
        return not self._model.training and not self._hook.in_any_mode

    # -- the hook ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have the hook count the passes."""
        self._leave()
        places = [self._model] if is_called(self._model) else list(entrances(self._model))
        self._entries = [
            place.register_forward_pre_hook(self._hook, prepend=True, with_kwargs=True) for place in places
        ]

    def _sleep(self) -> None:
        """Have something cheaper count them, until the hook's quiet is over."""
        if self._hook.quiet >= _NAP_PASSES and self._naps and Nap.fits(self._model):
            self._leave()
            self._hook.nap = _Nap(self._model, cast(Called, self._hook), self._wake)

    def _leave(self) -> None:
        nap, self._hook.nap = self._hook.nap, None
        if nap is not None:
            nap.end()
        entries, self._entries = self._entries, []
        for handle in entries:
            handle.remove()

    # -- passes ------------------------------------------------------------------------------------------------------

    def called(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        """A pass begins, and is not one of those that were foreseen to need nothing."""
        if self.closed or self._process != os.getpid() or torch._C._is_tracing() or not self._is_our_thread():
            return
        if self.probing.in_pass and not self._interrupted():
            return  # the model calls itself
        test = not module.training and not self._hook.in_any_mode
        if self._by_optimizer and not test:
            if self._begun:
                return
            self._begun = True
        self._finish()
        step = self.step if test else self._next_step()
        self._be_quiet(step, 0)
        always = self._boundary(max(step, 0), test)  # the only thing that may raise: Ctrl-C, while it waits
        now = time.monotonic()
        self._look(max(step, 0), test, now, arguments, keywords)
        if not test and not always and not self.probing.in_pass:
            self._be_quiet(step, self._quiet_steps(step, now))
            self._naps = self._naps and module is self._model  # not a replica of it on another GPU
            self._sleep()

    def _look(self, step: int, test: bool, now: float, arguments: Any, keywords: Any) -> None:
        probing, due = self.probing, self.budget.due(now, self._host.wants, test)
        given = (None, None) if self._by_optimizer else (arguments, keywords)
        if not probing.known:
            probing.observe(*given)
        elif due:
            probing.begin(step, self._counters(), test, arguments=given[0], keywords=given[1])
        else:
            return
        if not probing.in_pass:
            self._finish()  # nobody was there, or only weights are looked at
        elif not self._by_optimizer:
            probing.until(self._model.register_forward_hook(_Ends(self), always_call=True))

    def passed(self) -> None:
        """The pass that is looked at has ended; its gradients may be yet to come."""
        waits = self.probing.waits_for_gradients
        self.probing.end_pass()
        if not waits:
            self._finish()

    def _finish(self) -> None:
        if self.probing.busy:
            self.budget.spent(self.probing.finish(), time.monotonic())

    def _next_step(self) -> int:
        if self._step_of is not None:
            try:
                return int(self._step_of())
            except Exception as error:
                self._step_of = None
                self._host.alert(f"step_of failed, steps are counted from here on: {type(error).__name__}: {error}")
        return self.step + 1

    def _is_our_thread(self) -> bool:
        """Passes of other threads are theirs."""
        self._thread = self._thread or threading.get_ident()
        return self._thread == threading.get_ident()

    def _interrupted(self) -> bool:
        """Whether the pass that is looked at ended without a word (Ctrl-C); else this is the model calling itself."""
        if self._by_optimizer:
            return False
        frame, calls = sys._getframe(), 0
        while frame is not None and calls < 2:
            calls += frame.f_code is _CALL and frame.f_locals.get("self") is self._model
            frame = frame.f_back  # type: ignore[assignment]
        return calls < 2

    # -- quiet -------------------------------------------------------------------------------------------------------

    def _be_quiet(self, step: int, passes: int) -> None:
        """From this step on, so many more are only counted."""
        self._reached, self._hook.quiet = step + passes, passes

    def _quiet_steps(self, step: int, now: float) -> int:
        """How many steps nothing is to be done at."""
        wants = self._host.wants
        if (looks(wants) and wants.train.unit != "auto") or self._by_optimizer or not self.probing.known:
            return 0
        if now - self._paced_at >= 0.01:
            pace = (step - self._paced_step) / (now - self._paced_at)
            self._pace = min(pace, 2 * self._pace + 20)  # a sudden change is not trusted
            self._paced_at, self._paced_step = now, step
        secs = _LOOK_SECS
        if looks(wants):
            secs = min(max(self.budget.next_at - now, 0.0) * 0.8, secs)
        return int(min(secs * self._pace, _MOST_QUIET))

    def _stepped(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        """Where the model's own call is not seen, an optimizer's step ends a step."""
        if not is_dynamo_compiling() and self._begun:
            self._begun = False
            self._finish()

    def close(self) -> None:
        """Take every hook off."""
        self.closed = True
        self._leave()
        for handle in self._idle:
            handle.remove()
        self.probing.close()


_CALL = nn.Module._call_impl.__code__


class _Begins(ProbeHook):
    """On the model all the time, and doing next to nothing: it counts down the passes that need no more."""

    __slots__ = ("_following", "in_any_mode", "nap", "quiet")

    def __init__(self, following: Following, only_training: bool) -> None:
        self._following, self.in_any_mode, self.quiet = following, not only_training, 0
        self.nap: Nap | None = None

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if is_dynamo_compiling() or in_backward() >= 0:
            return
        if module.training:
            self.in_any_mode = False
        if self.quiet > 0 and (module.training or self.in_any_mode):
            self.quiet -= 1
        else:
            self._following.called(module, arguments, keywords)

    def passed(self) -> None:
        """A pass has ended that began in our place."""
        _Ends(self._following)(self._following._model, (), None)


class _Nap(Nap):
    """Counts steps in the hook's place; a test, of which each pass may be looked at, wakes it."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        hook: Any = self._hook
        if self._model.training or hook.in_any_mode or hook.nap is not self or is_dynamo_compiling():
            return Nap.__call__(self, *arguments, **keywords)
        self._wake()
        hook(self._model, arguments, keywords)
        try:
            return self.__wrapped__(*arguments, **keywords)
        finally:
            hook.passed()  # torch has gone by already where hooks are called


class _Ends(ProbeHook):
    """On the model, while a pass is looked at."""

    __slots__ = ("_following",)

    def __init__(self, following: Following) -> None:
        self._following = following

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        try:
            self._following.passed()
        except Exception as error:
            self._following.probing.failed("(the end of a pass)", error)
