"""The child's own reader: sums every value up, judges it by the rules, writes the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from torcheer.inspector.log import Log
from torcheer.inspector.records import Alert, Plan, Say, Sent
from torcheer.inspector.rules import Rules
from torcheer.inspector.statistics import summarise


class Analysis:
    """A `Reader` that composes statistics, rules and log as a plan asks for."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._say = say
        self._rules = Rules(plan.rules, self._problem)
        self._log = Log(plan.to, plan.keep, tell=self._problem) if plan.to else None
        self._busy = False  # whether anything came since the last tick

    def take(self, sent: Sent) -> None:
        """Sum up, write down, judge."""
        self._busy = True
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

    def close(self) -> None:
        """Judge the last step, end the log."""
        self._tell(self._rules.close())
        if self._log is not None:
            self._log.close()

    def _tell(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            if self._log is not None:
                self._log.alert(alert)
            self._say({"kind": "alert", **asdict(alert)})

    def _problem(self, text: str) -> None:
        self._say({"kind": "problem", "text": text})
