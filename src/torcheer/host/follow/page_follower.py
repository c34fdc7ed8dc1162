"""Follows a user's loop for a page: decides which passes are recorded, and where the loop may pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch.optim import Optimizer

from torcheer.host.follow.layer_probes import LayerProbes
from torcheer.host.follow.record_rate import Budget
from torcheer.host.state_sender import is_subscribed
from torcheer.samples import Alert
from torcheer.tap.counting.steps import Call, Wake, followers_of, steps_of
from torcheer.tap.step_schedule import Pace

_EARLY: Final = 0.8  # of the time until the next record is due: the pace is an estimate


class PageFollower:
    """Calls `boundary(step, test)` before passes, and records those that are due (`steps.Follower`).

    `boundary` may wait, and returns True if it must be called at every step. Passes in evaluation mode are tests;
    passes in other threads than the first one's are only counted.
    """

    sees_tests, uses_optimizers, awaits_optimizer = True, False, False
    rules = ()

    def __init__(
        self, probes: LayerProbes, boundary: Callable[[int, bool], bool], *,
        counters: Callable[[], Mapping[str, Any]], step_of: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.probes, self.budget = probes, Budget()
        self._boundary, self._counters, self._host = boundary, counters, probes.host
        self._steps = steps_of(probes.model)
        self._thread, self._wants_every_step = 0, False
        if not self._steps.by_optimizer and not probes.is_described:
            probes.finder.record_next_call()
        self._following = self._steps.follow(self, probes.host.alert, step_of=step_of)

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._following.step

    @property
    def is_watched(self) -> bool:
        """True while the rules of a watch judge the model."""
        return bool(self.rules_of_watches)

    @property
    def rules_of_watches(self) -> set[str]:
        """The rules of all watches of the model."""
        return {rule for follower in followers_of(self.probes.model) for rule in follower.rules}

    @property
    def run(self) -> Path | None:
        """The run's folder; None for a temporary one."""
        return None if self._host.path is None or self._host.folder is not None else self._host.path.parent

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._following.is_closed

    # -- a follower of the steps -------------------------------------------------------------------------------------

    @property
    def in_pass(self) -> bool:
        """True while a pass is recorded or observed."""
        return self.probes.in_pass

    def settle(self) -> None:
        """Complete the state of the step before."""
        if self.probes.busy and self._is_our_thread():
            self.budget.spent(self.probes.finish(), time.monotonic())

    def reach_boundary(self, step: int) -> None:
        """Let the page pause the loop; a Ctrl-C while it waits is raised."""
        if self._is_our_thread():
            self._wants_every_step = self._boundary(max(step, 0), False)

    def begin_step(self, step: int, call: Call | None, now_secs: float) -> Wake:
        """Record a step that is due."""
        if self._is_our_thread():
            self._record(step, False, call, now_secs)
        is_busy = self._wants_every_step or self.in_pass or not self._is_our_thread()
        return Wake(0 if is_busy else self._idle_steps(now_secs))

    def begin_test(self, step: int, call: Call | None, now_secs: float) -> None:
        """Record a pass in evaluation mode that is due."""
        if self._is_our_thread():
            self.settle()
            self._boundary(max(step, 0), True)
            self._record(step, True, call, time.monotonic())

    def _record(self, step: int, test: bool, call: Call | None, now_secs: float) -> None:
        probes, due = self.probes, self.budget.due(now_secs, self._host.wants, test)
        arguments, keywords = call or (None, None)
        if not probes.is_described:
            probes.observe(arguments, keywords)
        elif due:
            probes.begin(max(step, 0), self._counters(), test, arguments=arguments, keywords=keywords)
        if not probes.in_pass:
            self.settle()  # the state was dropped, or only weights are recorded

    def end_pass(self) -> None:
        """End a recorded pass, whose gradients may still arrive."""
        waits = self.probes.waits_for_gradients
        self.probes.end_pass()
        if not waits:
            self.settle()

    def optimizer_begins(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Gradients of weights are not shown."""

    def optimizer_stepped(self, optimizer: Optimizer, counts: bool) -> None:
        """Complete the state of a step that an optimizer ends."""
        if counts and self._steps.by_optimizer:
            self.settle()

    def hear(self, alert: Alert, run: Path | None) -> None:
        """Show an alert of a watch, unless the page reads it in the log of its own run."""
        path = self._host.path
        if path is None or run is None or path.parent.resolve() != run.resolve():
            self._host.pass_on(replace(alert, id=""))

    def _is_our_thread(self) -> bool:
        """True in the thread of the first pass."""
        self._thread = self._thread or threading.get_ident()
        return self._thread == threading.get_ident()

    def _idle_steps(self, now_secs: float) -> int:
        """How many steps may be skipped before the next check of subscription and orders."""
        wants, secs = self._host.wants, Pace.MOMENT_SECS
        if self._steps.by_optimizer or not self.probes.is_described:
            return 0
        if is_subscribed(wants):
            if wants.train.unit != "auto":
                return 0
            secs = min(max(self.budget.next_at - now_secs, 0.0) * _EARLY, secs)
        return self._steps.pace.idle_steps(0, secs)

    def close(self) -> None:
        """Remove every hook."""
        self._following.close()
        self.probes.close()
