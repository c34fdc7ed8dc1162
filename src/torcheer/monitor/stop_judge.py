"""Judge in the training process what `stop_on` names, so that a loop stops before its next step.

The child judges everything, a while later. What needs no history (the fatal rules) is judged here, too, by the same
rule, on the values that are not finite; for the others the loop asks the child, and waits for its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torcheer.monitor.rules import RULES, Rules
from torcheer.monitor.watch_settings import ends_run
from torcheer.samples import Alert, Delivery, summarise

ANSWER_SECS: Final = 1.0  # that a watched step waits, at most, for the child's verdict on a rule with a history
_NAMED_SECS: Final = 2.0  # that a loop which stops waits, at most, for the child to name the value


class StopJudge:
    """What `stop_on` names: judged on values as they are sent, and where that takes a history, by the child."""

    def __init__(self, stop_on: Sequence[str], rules: Mapping[str, Any]) -> None:
        named = {name: settings for name, settings in rules.items() if ends_run(stop_on, name, RULES[name].severity)}
        at_once = {name: settings for name, settings in named.items() if _needs_no_history(name, settings)}
        self._rules = Rules(at_once)
        self.judges_values = bool(at_once)
        self.needs_child = named.keys() != at_once.keys()
        self._found: list[Alert] = []

    def judge(self, delivery: Delivery, last_look: int | None) -> bool:
        """Judge a value with numbers that are not finite; whether it is found faulty. `last_look`: the step before."""
        if last_look is not None:
            self._rules.look(last_look)  # since then, the fault may have been there
        alerts = self._rules.judge(delivery, summarise(delivery))
        self._found += alerts
        return bool(alerts)

    def take_found(self) -> list[Alert]:
        """The alerts since the last call."""
        found, self._found = self._found, []
        return found

    def patience_secs(self, found: Sequence[Alert]) -> float:
        """How long the loop waits for the child: to name what was found, or for its verdict."""
        if found:
            return _NAMED_SECS
        return ANSWER_SECS if self.needs_child else 0.0


def _needs_no_history(rule: str, settings: Mapping[str, Any]) -> bool:
    return RULES[rule].severity == "error" and settings["patience"] == 1
