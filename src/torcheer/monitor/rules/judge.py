"""Judging by rules: each key has a memory of how long it is ill, and is told of once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torcheer.monitor.rules.rule import Board, Finding, Rule, Verdict
from torcheer.monitor.rules.rule_settings import RULES
from torcheer.samples import Alert, Delivery, Key, Statistics

_NAMED = 4  # further keys that an alert names
_APART = 10  # steps with values between two alerts of one rule; what falls ill meanwhile is told together


@dataclass(slots=True)
class _Streak:
    """How long a key is ill, or well again."""

    ill: int = 0  # looks in a row
    well: int = 0
    since: int = 0
    told: bool = False  # or folded into what it follows from


@dataclass(frozen=True, slots=True)
class _Case:
    """A key that fell ill, before it is told."""

    key: Key
    finding: Finding
    step: int
    since: int

    def __str__(self) -> str:
        return f"{self.key[0]} ({self.key[1]})"


class Rules:
    """Looks at one value after the other, and says what is wrong: `judge` while they come, `close` at the end."""

    def __init__(self, settings: dict[str, Any], report: Callable[[str], None] = lambda text: None) -> None:
        self._rules = {name: RULES[name](given) for name, given in settings.items()}
        self._report = report
        self._asked: dict[str, list[Rule]] = {}  # by kind of value, those that want to see it
        self._streaks: dict[tuple[str, Key], _Streak] = {}
        self._boards: dict[bool, Board] = {}  # of metrics, which come at every step, and of what is watched
        self._past: dict[bool, Board] = {}  # the ones before them, for what comes late
        self._step: int | None = None  # that anything came of last
        self._waiting: dict[str, list[_Case]] = {}
        self._looks = 0  # steps that brought anything
        self._told: dict[str, list[int]] = {}  # by rule, the looks at which it told

    def judge(self, sent: Delivery, summary: Statistics) -> list[Alert]:
        """Look at a value; what is told of its step may come with the first value of the next."""
        step = sent.sample.step
        alerts, board = self._board_of(step, *sent.key)
        seen = board.describe(sent, summary)
        sound = not (summary.nans or summary.infs or sent.finite is False)
        if sound:
            board.add(seen)
        asked = [rule for rule in self._wanting(seen.variable) if sound or rule.severity == "error"]
        self._ask(asked, step, lambda rule: rule.see(seen, sent, board))
        fatal = [rule.name for rule in asked if rule.severity == "error" and rule.name in self._waiting]
        alerts += self._tell_causes(step) if fatal else []
        return alerts + [alert for name in fatal for alert in self._tell(name)]

    def _tell_causes(self, step: int) -> list[Alert]:
        """What the last look had found to explain others, before the first of those is told of a later step."""
        board, causes = self._boards.get(False), [rule for rule in self._rules.values() if rule.explains]
        if board is not None and board.step < step:
            self._ask(causes, board.step, lambda rule: rule.end(board))
        return [alert for rule in causes for alert in self._tell(rule.name)]

    def _board_of(self, step: int, layer: str, variable: str) -> tuple[list[Alert], Board]:
        """Where a value belongs, and what is told of the step that it ends.

        Metrics that come while gradients are accumulated end no step of which an update is yet to come; and a value
        that was overtaken (the ring may keep only the latest of each key) does not end the step of the others. A key
        that a step has already begins another of its number.
        """
        metric = variable == "metric"
        for boards in (self._boards, self._past):
            board = boards.get(metric)
            if board is not None and board.step == step and (metric or layer not in board.all(variable)):
                return [], board
        alerts = self._end(metric)
        self._looks += step != self._step
        self._step, self._boards[metric] = step, Board(step)
        return alerts, self._boards[metric]

    def _wanting(self, variable: str) -> list[Rule]:
        """The rules that are to see values of a kind."""
        if variable not in self._asked:
            self._asked[variable] = [rule for rule in self._rules.values() if rule.wants(variable)]
        return self._asked[variable]

    def change(self, settings: dict[str, Any]) -> None:
        """Go by other rules, or other settings of them, from now on; those that stay as they were forget nothing."""
        kept = {name: rule for name, rule in self._rules.items() if rule.settings == settings.get(name)}
        self._rules = {name: kept.get(name) or RULES[name](given) for name, given in settings.items()}
        self._streaks = {place: streak for place, streak in self._streaks.items() if place[0] in kept}
        self._waiting = {name: cases for name, cases in self._waiting.items() if name in kept}
        self._asked.clear()

    def idle(self) -> list[Alert]:
        """What waits to be told, causes first; a step that stands still has brought most of what it will."""
        names = sorted(self._waiting, key=lambda name: not RULES[name].explains)
        return [alert for name in names for alert in self._tell(name)]

    def close(self) -> list[Alert]:
        """Judge the last step, and tell everything: nothing more will come."""
        alerts = self._end(False) + self._end(True)
        self._looks += _APART
        return alerts + self.idle()

    def _end(self, metric: bool) -> list[Alert]:
        """Judge the step so far as a whole."""
        board = self._boards.pop(metric, None)
        if board is not None:
            self._past[metric] = board
        if board is not None and not metric:  # metrics are judged one by one
            self._ask(list(self._rules.values()), board.step, lambda rule: rule.end(board))
        return self.idle()

    def _ask(self, rules: list[Rule], step: int, question: Callable[[Rule], Iterator[Verdict]]) -> None:
        for rule in rules:
            try:
                verdicts = list(question(rule))
            except Exception as error:  # a rule that is wrong must not cost the others their say
                del self._rules[rule.name]
                self._asked.clear()
                self._report(f"the rule {rule.name} failed and is left out: {type(error).__name__}: {error}")
                continue
            for key, finding in verdicts:
                self._note(rule, key, finding, step)

    def _note(self, rule: Rule, key: Key, finding: Finding | None, step: int) -> None:
        place = rule.name, key
        if finding is None:
            streak = self._streaks.get(place)
            if streak is not None:
                streak.ill, streak.well = 0, streak.well + 1
                if not streak.told or streak.well >= rule.patience:
                    del self._streaks[place]
            return
        streak = self._streaks.setdefault(place, _Streak())
        if not streak.ill:
            streak.since = step
        streak.ill, streak.well = streak.ill + 1, 0
        if not streak.told and streak.ill >= rule.patience:
            streak.told = True
            since = streak.since if finding.since is None else finding.since
            self._waiting.setdefault(rule.name, []).append(_Case(key, finding, step, since))

    def _tell(self, name: str) -> Iterator[Alert]:
        """One alert for all keys that fell ill together, or while the rule had just spoken; none for symptoms."""
        told = self._told.setdefault(name, [])
        if name not in self._waiting or (told and self._looks < told[-1] + _APART):
            return
        causes = self._causes(name)
        if causes and RULES[name].severity != "error":  # what ends the run is told all the same
            del self._waiting[name]
            return
        cases = sorted(self._waiting.pop(name), key=lambda case: (case.since, case.finding.order))
        told.append(self._looks)
        most = RULES[name].common["most"] if name not in self._rules else self._rules[name].settings["most"]
        if len(told) <= most:
            yield self._alert(name, cases, self._symptoms(name), causes, last=len(told) == most)

    def _causes(self, name: str) -> list[str]:
        """What was found, and still holds, that explains the findings of a rule."""
        ill = {rule for (rule, _), streak in self._streaks.items() if streak.ill and streak.told}
        return [rule for rule in ill if rule in self._rules and name in self._rules[rule].explains]

    def _symptoms(self, name: str) -> list[str]:
        """What follows from a finding, as far as it shows: also what has not lasted long enough to be told."""
        explains = self._rules[name].explains if name in self._rules else ()
        ill = [place for place, streak in self._streaks.items() if streak.ill and place[0] in explains]
        return [
            f"{rule} of {key[0]} ({key[1]})" for rule, key in sorted(ill, key=lambda place: explains.index(place[0]))
        ]

    @staticmethod
    def _alert(name: str, cases: list[_Case], symptoms: list[str], causes: list[str], *, last: bool) -> Alert:
        first, *others = cases
        values, what = dict(first.finding.values), first.finding.what
        if others:
            values["also"] = [str(case) for case in others]
            named = ", ".join(values["also"][:_NAMED]) + (", …" if len(others) > _NAMED else "")
            what += f"; so it is with {len(others):,} more: {named}"
        if causes:
            values["causes"] = causes
            what += f"; it may follow from {' and '.join(causes)}, told before"
        if symptoms:
            values["symptoms"] = symptoms
            named = ", ".join(symptoms[:_NAMED]) + (", …" if len(symptoms) > _NAMED else "")
            what += f"; {len(symptoms):,} other finding{'s' * (len(symptoms) != 1)} may follow from it: {named}"
        if last:
            what += " (this rule tells no more in this run)"
        layer, variable = first.key
        return Alert(
            name, layer, variable, first.step, first.since, what, first.finding.advice, RULES[name].severity, values
        )
