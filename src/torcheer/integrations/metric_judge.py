"""The rules of a watch on numbers alone, in this process: for a loop whose model nobody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from torcheer.monitor.rules import Rules, resolve_rules
from torcheer.monitor.watch_settings import ends_run, stops
from torcheer.records import Sample
from torcheer.runlog.log_frames import METRICS
from torcheer.samples import Alert, Delivery, summarise


class MetricJudge:
    """Judges the numbers of one step after the other; `stop_on` names the rules that set `should_stop`."""

    def __init__(self, rules: Any, stop_on: str | Sequence[str], report: Callable[[str], None]) -> None:
        settled = resolve_rules(rules)
        self.rules, self.stop_on, self.should_stop = rules, stops(stop_on, settled), False
        self._rules = Rules(settled, report)

    def judge(self, numbers: Mapping[str, Any], step: int) -> list[Alert]:
        """The alerts about these numbers, or about those of the step before."""
        alerts: list[Alert] = []
        for name, number in numbers.items():
            sample = Sample(step, name, METRICS, array=np.array(float(number)))
            delivery = Delivery(sample, time.time())
            alerts += self._rules.judge(delivery, summarise(delivery))
        return self._noted(alerts)

    def close(self) -> list[Alert]:
        """The alerts that were still to come."""
        return self._noted(self._rules.close())

    def _noted(self, alerts: list[Alert]) -> list[Alert]:
        for alert in alerts:
            self.should_stop |= ends_run(self.stop_on, alert.rule, alert.severity)
        return alerts


def is_number(cell: Any) -> bool:
    """Whether a cell is a single number, which rules can judge."""
    if isinstance(cell, bool | str):
        return False
    return isinstance(cell, Real) or (getattr(cell, "shape", None) == () and hasattr(cell, "__float__"))
