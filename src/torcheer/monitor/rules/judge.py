"""Apply the rules to the values, track how long each key has been failing, and alert once per key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torcheer.monitor.rules.causes import EXPLAINS, MISTAKES, Cause, rank
from torcheer.monitor.rules.loss_fits import LossGradient
from torcheer.monitor.rules.rule import Finding, Rule, StepValues, Verdict
from torcheer.monitor.rules.rule_settings import RULES
from torcheer.samples import Alert, Delivery, Key
from torcheer.terminal import first_names, plural
from torcheer.vocabulary.array_statistics import Statistics

_NAMED = 4  # further keys named in an alert
_LEAST_GAP = 10  # steps with values between two alerts of one rule; faults in between share an alert
_INCIDENT_LOOKS = 10  # after a cause was last found, for what begins then to be its consequence


@dataclass(slots=True)
class _Streak:
    """How long a key has been failing, or fine again."""

    failing: int = 0  # watched steps in a row
    fine: int = 0
    since: int = 0
    began_look: int = 0  # the count of looks when it began
    kind: str = ""  # of the finding
    alerted: bool = False  # also where it was folded into the alert of its cause


@dataclass(frozen=True, slots=True)
class _PendingAlert:
    """A failing key whose alert is not sent yet."""

    key: Key
    finding: Finding
    step: int
    since: int
    began_look: int

    def __str__(self) -> str:
        return f"{self.key[0]} ({self.key[1]})"

    @property
    def order(self) -> tuple[int, float]:
        """The place among those of one rule."""
        return self.since, self.finding.order

    @property
    def began(self) -> int:
        """The step at which a cause must have been there: a metric is judged over a stretch of steps."""
        return self.step if self.key[1] == "metric" else self.since


class Rules:
    """Judges one value after the other and returns alerts: `judge` on arrival, `close` at the end."""

    def __init__(self, settings: dict[str, Any], report: Callable[[str], None] = lambda text: None) -> None:
        self._rules = {name: RULES[name](rule_settings) for name, rule_settings in settings.items()}
        self._report = report
        self._subscribers: dict[str, list[Rule]] = {}  # by variable, the rules that observe it
        self._streaks: dict[tuple[str, Key], _Streak] = {}
        self._current: dict[bool, StepValues] = {}  # True: metrics, which come at every step; False: watched values
        self._previous: dict[bool, StepValues] = {}  # the steps before those, for late values
        self._loss_gradient = LossGradient()
        self._step: int | None = None  # of the last value
        self._pending: dict[str, list[_PendingAlert]] = {}
        self._step_count = 0  # steps with values
        self._looks = 0  # steps with other values than metrics
        self._alert_steps: dict[str, list[int]] = {}  # by rule, the step counts of its alerts
        self._told: dict[tuple[str, str], Cause] = {}  # by rule and kind, the finding that was told of first and holds

    def judge(self, delivery: Delivery, summary: Statistics) -> list[Alert]:
        """Judge a value; alerts about its step may come with the first value of the next."""
        step = delivery.sample.step
        alerts, values = self._step_values(step, *delivery.key)
        value = values.describe(delivery, summary)
        is_finite = not (summary.nans or summary.infs or delivery.finite is False)
        if is_finite:
            values.add(value)
        rules = [rule for rule in self._rules_for(value.variable) if is_finite or rule.severity == "error"]
        self._apply(rules, step, lambda rule: rule.observe(value, delivery, values))
        fatal = [rule.name for rule in rules if rule.severity == "error" and rule.name in self._pending]
        alerts += self._alert_causes(step) if fatal else []
        return alerts + [alert for name in fatal for alert in self._alerts_of(name)]

    def _alert_causes(self, step: int) -> list[Alert]:
        """Alerts of the last step that explain others, before the first of those is reported for a later step."""
        values, causes = self._current.get(False), [rule for name, rule in self._rules.items() if name in MISTAKES]
        if values is not None and values.step < step:
            self._apply(causes, values.step, lambda rule: rule.end(values))
        return [alert for rule in causes for alert in self._alerts_of(rule.name)]

    def _step_values(self, step: int, layer: str, variable: str) -> tuple[list[Alert], StepValues]:
        """The step that a value belongs to, and the alerts of the step that it ends.

        Metrics that come while gradients are accumulated do not end a step whose update is still to come; and a late
        value (the ring may keep only the latest of each key) does not end the step of the others. A key that a step
        already has begins another step of the same number.
        """
        metric = variable == "metric"
        for steps in (self._current, self._previous):
            values = steps.get(metric)
            if values is not None and values.step == step and (metric or layer not in values.all(variable)):
                return [], values
        alerts = self._end(metric)
        self._step_count += step != self._step
        self._looks += not metric
        self._step, self._current[metric] = step, StepValues(step, self._loss_gradient)
        return alerts, self._current[metric]

    def _rules_for(self, variable: str) -> list[Rule]:
        """The rules that observe a variable."""
        if variable not in self._subscribers:
            self._subscribers[variable] = [rule for rule in self._rules.values() if rule.wants(variable)]
        return self._subscribers[variable]

    def change(self, settings: dict[str, Any]) -> None:
        """Switch to other rules or settings; unchanged rules keep their state."""
        kept = {name: rule for name, rule in self._rules.items() if rule.settings == settings.get(name)}
        self._rules = {name: kept.get(name) or RULES[name](rule_settings) for name, rule_settings in settings.items()}
        self._streaks = {place: streak for place, streak in self._streaks.items() if place[0] in kept}
        self._pending = {name: cases for name, cases in self._pending.items() if name in kept}
        self._subscribers.clear()

    def look(self, step: int) -> None:
        """Note a step that is looked at, where only its faulty values will be judged."""
        for rule in self._rules.values():
            rule.look(step)

    def finish_step(self) -> list[Alert]:
        """Judge the watched step as complete before the next one says so, and return pending alerts."""
        return self._end(False)

    def idle(self) -> list[Alert]:
        """Return pending alerts, causes first; called while no values arrive, when the step is nearly complete."""
        return [alert for name in sorted(self._pending, key=self._cause_order) for alert in self._alerts_of(name)]

    def _cause_order(self, name: str) -> tuple[bool, int, int]:
        """The place of a rule's pending alerts among those of other rules: what explains others comes first."""
        return (
            name not in MISTAKES,
            min(case.began for case in self._pending[name]),
            min(rank(name, case.finding.kind) for case in self._pending[name]),
        )

    def close(self) -> list[Alert]:
        """Judge the last step and return all remaining alerts."""
        alerts = self._end(False) + self._end(True)
        self._step_count += _LEAST_GAP
        return alerts + self.idle()

    def _end(self, metric: bool) -> list[Alert]:
        """Judge the current step as complete."""
        values = self._current.pop(metric, None)
        if values is not None:
            self._previous[metric] = values
        if values is not None and not metric:  # metrics are judged on arrival
            self._apply(list(self._rules.values()), values.step, lambda rule: rule.end(values))
        return self.idle()

    def _apply(self, rules: list[Rule], step: int, call: Callable[[Rule], Iterator[Verdict]]) -> None:
        for rule in rules:
            try:
                verdicts = list(call(rule))
            except Exception as error:  # a failing rule must not stop the others
                del self._rules[rule.name]
                self._subscribers.clear()
                self._report(f"the rule {rule.name} failed and is left out: {type(error).__name__}: {error}")
                continue
            for key, finding in verdicts:
                self._record(rule, key, finding, step)

    def _record(self, rule: Rule, key: Key, finding: Finding | None, step: int) -> None:
        place = rule.name, key
        if finding is None:
            streak = self._streaks.get(place)
            if streak is not None:
                streak.failing, streak.fine = 0, streak.fine + 1
                if not streak.alerted or streak.fine >= rule.patience:
                    del self._streaks[place]
            return
        streak = self._streaks.setdefault(place, _Streak())
        if not streak.failing:
            streak.since, streak.began_look = step, self._looks
        streak.failing, streak.fine, streak.kind = streak.failing + 1, 0, finding.kind
        if (cause := self._told.get((rule.name, finding.kind))) is not None:
            cause.last_look = self._looks
        if not streak.alerted and streak.failing >= rule.patience:
            streak.alerted = True
            since = streak.since if finding.since is None else finding.since
            case = _PendingAlert(key, finding, step, since, streak.began_look)
            self._pending.setdefault(rule.name, []).append(case)

    def _alerts_of(self, name: str) -> Iterator[Alert]:
        """One alert for all keys that failed together, or shortly after the rule's last alert.

        What may follow from another finding is told once for that, and not at all where it is a mistake of the loop.
        """
        alert_steps = self._alert_steps.setdefault(name, [])
        if name not in self._pending or (alert_steps and self._step_count < alert_steps[-1] + _LEAST_GAP):
            return
        by_root: dict[int, tuple[Cause | None, list[_PendingAlert]]] = {}
        for case in sorted(self._pending.pop(name), key=lambda case: case.order):
            root = self._root(name, case)
            by_root.setdefault(id(root), (root, []))[1].append(case)
        most = RULES[name].common["most"] if name not in self._rules else self._rules[name].settings["most"]
        for root, cases in by_root.values():
            if root is not None and not self._is_news(name, cases[0].finding.kind, root):
                continue
            alert_steps.append(self._step_count)
            if len(alert_steps) <= most:
                yield self._alert(name, cases, root, last=len(alert_steps) == most)

    def _root(self, name: str, case: _PendingAlert) -> Cause | None:
        """The first finding told of that may explain one; None where it stands for itself."""
        causes = [
            cause
            for cause in self._told.values()
            if cause.explains(name, case.finding.kind)
            and cause.since <= case.began
            and (cause.last_look >= case.began_look - _INCIDENT_LOOKS or self._holds(cause))
        ]
        roots = [cause.root or cause for cause in causes]
        return min((root for root in roots if root.rule != name), key=lambda root: root.order, default=None)

    def _holds(self, cause: Cause) -> bool:
        return any(
            streak.failing and streak.alerted and (rule, streak.kind) == (cause.rule, cause.kind)
            for (rule, _), streak in self._streaks.items()
        )

    @staticmethod
    def _is_news(name: str, kind: str, root: Cause) -> bool:
        """Whether a consequence is told; fatal findings are in any case."""
        if RULES[name].severity == "error":
            return True
        is_new = (name, kind) not in root.told
        root.told.add((name, kind))
        return is_new and root.rule not in MISTAKES

    def _symptoms(self, name: str) -> list[str]:
        """The consequences of a mistake seen so far, including those that have not lasted long enough for an alert."""
        explained = EXPLAINS[name] if name in MISTAKES else ()
        failing = [place for place, streak in self._streaks.items() if streak.failing and place[0] in explained]
        return [
            f"{rule} of {key[0]} ({key[1]})"
            for rule, key in sorted(failing, key=lambda place: explained.index(place[0]))
        ]

    def _alert(self, name: str, cases: list[_PendingAlert], root: Cause | None, *, last: bool) -> Alert:
        first, *others = cases
        values, text = dict(first.finding.values), first.finding.what
        if others:
            values["also"] = [str(case) for case in others]
            text += f"; the same in {len(others):,} more: {first_names(values['also'], _NAMED)}"
        if root is not None:
            values["causes"] = [root.rule]
        if symptoms := self._symptoms(name):
            values["symptoms"] = symptoms
            named = first_names(symptoms, _NAMED)
            text += f"; {plural(len(symptoms), 'other finding')} may follow from it: {named}"
        if last:
            text += " (this rule tells no more in this run)"
        advice = first.finding.advice if root is None else root.advice
        self._remember(name, first, advice, root)
        return Alert(
            name, *first.key, first.step, first.since, text, advice, RULES[name].severity, values,
            follows="" if root is None else str(root),
        )  # fmt: skip

    def _remember(self, name: str, case: _PendingAlert, advice: str, root: Cause | None) -> None:
        """Keep what was told, for what may follow from it; the first one that still holds is the cause."""
        place = name, case.finding.kind
        earlier = self._told.get(place)
        if earlier is None or not (earlier.last_look >= self._looks - _INCIDENT_LOOKS or self._holds(earlier)):
            self._told[place] = Cause(*place, case.step, case.since, advice, self._looks, root)
