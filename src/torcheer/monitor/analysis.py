"""The child's own reader: sums every value up, judges it by the rules, writes the log."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from statistics import median
from typing import Any

from torcheer.monitor.array_statistics import summarise
from torcheer.monitor.child_plan import Plan
from torcheer.monitor.rules import Rules
from torcheer.runlog.watch_log import WatchLog
from torcheer.samples import Alert, Delivery, SendMessage

_USUAL = 5  # pauses from which one knows how long they are
_TIMES = 20  # as long as usual is far too long


class Analysis:
    """A `Reader` that composes statistics, rules and log as a plan asks for."""

    def __init__(self, plan: Plan, say: SendMessage) -> None:
        self._say = say
        self._rules = Rules(plan.rules, self._problem)
        self._log = WatchLog(plan.to, plan.keep, tell=self._problem, alert=self._alert) if plan.to else None
        self._busy = False  # whether anything came since the last tick
        self._silence = _silence(plan.rules)

    def change(self, changes: dict[str, Any]) -> None:
        """Go by other settings of the plan from now on."""
        if "rules" in changes:
            self._rules.change(changes["rules"])
            self._silence = _silence(changes["rules"])

    def take(self, sent: Delivery) -> None:
        """Sum up, write down, judge."""
        self._busy = True
        if self._silence is not None:
            self._silence.broken(sent.sample.step, time.monotonic(), sent.time_secs)
        summary = summarise(sent)
        if self._log is not None:
            self._log.add(sent, summary)
        self._tell(self._rules.judge(sent, summary))

    def tick(self) -> None:
        """Write what waits; a step that stands still is told of."""
        if self._log is not None:
            self._log.tick()
        if not self._busy:
            self._tell(self._rules.idle())
        self._busy = False
        if self._silence is not None and (alert := self._silence.alert(time.monotonic())) is not None:
            self._tell([alert])
            if sys.stderr is not None:  # the training process hears of it when it goes on, if it does
                print(f"torcheer: {alert}", file=sys.stderr)

    def close(self) -> None:
        """Judge the last step, end the log."""
        self._tell(self._rules.close())
        if self._log is not None:
            self._log.close()

    @property
    def log_facts(self) -> dict[str, Any] | None:
        """How many values are in the log, and why there are no more; None without a log."""
        return None if self._log is None else {"written": self._log.written, "why": self._log.why}

    def _tell(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            if self._log is not None:
                self._log.alert(alert)
            self._alert(alert)

    def _alert(self, alert: Alert) -> None:
        self._say({"kind": "alert", **asdict(alert)})

    def _problem(self, text: str) -> None:
        self._say({"kind": "problem", "text": text})


def _silence(rules: dict[str, Any]) -> Silence | None:
    loader = rules.get("stalled_loader")
    return Silence(loader["silent_secs"]) if loader else None


class Silence:
    """Whether steps have ceased to come; told once, and taken back without a word when they go on."""

    def __init__(self, least_secs: float) -> None:
        self._least_secs, self._told, self._longest = least_secs, False, 0.0
        self._step, self._heard, self._taken = -1, 0.0, 0.0  # the last step; when anything came, and was taken, last
        self._pauses: deque[float] = deque(maxlen=50)  # between the values of two steps

    def broken(self, step: int, now: float, taken: float) -> None:
        """A value has come; `taken` is when it was taken, for it may have waited here."""
        if step != self._step:
            if self._heard:
                self._pauses.append(max(taken - self._taken, 0.0))
                self._longest = max(self._longest, self._pauses[-1])
            self._step, self._told = step, False
        self._heard, self._taken = now, taken

    def alert(self, now: float) -> Alert | None:
        """What there is to tell: nothing has come for far longer than is usual."""
        if self._told or len(self._pauses) < _USUAL:
            return None  # how training goes is not known yet
        secs, usual = now - self._heard, median(self._pauses)
        if secs < max(self._least_secs, _TIMES * usual, 2 * self._longest):
            return None
        self._told = True
        what = f"nothing has come for {secs:,.0f} s, where {usual:.2g} s are usual between two looks"
        advice = "see whether the loop waits for data (with num_workers=0 an error or a hang shows where it is)"
        values = {"silent_secs": secs, "usual_secs": usual}
        return Alert("stalled_loader", "", "run", self._step, self._step, what, advice, values=values)
