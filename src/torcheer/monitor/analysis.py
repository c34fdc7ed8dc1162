"""The built-in reader of the child: computes statistics, applies the rules, writes the log."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from torcheer.monitor.child_plan import Plan
from torcheer.monitor.rules import Rules
from torcheer.runlog.log_writer import LogWriter
from torcheer.samples import Alert, Delivery, SendMessage, bits_hash, place_in, summarise, summarise_together
from torcheer.terminal import folded
from torcheer.vocabulary.array_statistics import Statistics
from torcheer.wire.notify.notifier import notify_from

_LEAST_PAUSES = 5  # pauses needed to know their usual length
_FACTOR = 20  # times the usual pause is far too long
_PLACES_SECS = 2.0  # that an alert waits for the end of the first pass


class WatchAnalysis:
    """A `Reader` that combines statistics, rules and log according to the plan."""

    def __init__(self, plan: Plan, send_message: SendMessage, notifier_fds: Sequence[int] = ()) -> None:
        self._send_message, self._notifier_fds = send_message, notifier_fds
        self._rules = Rules(plan.rules, self._problem)
        self._log = None
        facts = {"rules": list(plan.rules)} | ({"rank": plan.rank} if plan.rank else {})
        if plan.to:
            self._log = LogWriter(
                plan.run or plan.to, plan.writer, keep=plan.keep, elsewhere=plan.elsewhere, tell=self._problem,
                alarm=self._alert, goes_on="Statistics and rules go on.",
                facts=facts, log_bytes=plan.log_bytes, continues=plan.continues,
            )  # fmt: skip
        self._hashed = frozenset(plan.rank.get("hashed", ()))  # variables whose bits other ranks' are compared with
        self._prepared: dict[int, Statistics] = {}  # by the id of a delivery
        self._told: dict[str, int] = {}  # the step of each rule's last alert
        self._busy = False  # whether a value arrived since the last tick
        self._silence, self._prints = _silence(plan.rules), plan.prints
        self._places = AlertPlaces(plan)

    def change(self, changes: dict[str, Any]) -> None:
        """Apply changed settings of the plan."""
        if "rules" in changes:
            self._rules.change(changes["rules"])
            self._silence = _silence(changes["rules"])
        if "places" in changes:
            self._places.learn(changes["places"])
            self._tell(())

    def prepare(self, deliveries: Sequence[Delivery]) -> None:
        """Compute the statistics of values that `take` is given next, at a fraction of the cost of one by one."""
        values = [delivery for delivery in deliveries if delivery.media is None]
        self._prepared = dict(zip(map(id, values), summarise_together(values)))

    def take(self, delivery: Delivery) -> None:
        """Compute the statistics of a value, log it, judge it; what a person logged is only written."""
        self._busy = True
        if self._silence is not None:
            self._silence.end(delivery.sample.step, time.monotonic(), delivery.time_secs)
        if delivery.media is not None:
            if self._log is not None:
                self._log.sample(delivery.sample, delivery.media, delivery.time_secs)
            return
        summary = self._prepared.pop(id(delivery), None) or summarise(delivery)
        if self._log is not None:
            hashes = delivery.sample.variable in self._hashed
            self._log.value(delivery, summary, bits_hash(delivery.sample.array, delivery.stride) if hashes else None)
        self._tell(self._rules.judge(delivery, summary))

    def judge(self, question: dict[str, Any]) -> None:
        """Return pending alerts of a step that is complete, and those `found` there of which no value came here."""
        self._places.is_waiting = False  # the first pass is over
        self._tell(self._rules.finish_step() if question["is_complete"] else self._rules.idle())
        found = [Alert(**fields) for fields in question["found"]]
        self._tell([alert for alert in found if self._told.get(alert.rule, -1) < alert.step])

    def tick(self) -> None:
        """Flush the log; return pending alerts while no values arrive; check for a stalled run."""
        if self._log is not None:
            self._log.tick()
        if not self._busy:
            self._tell(self._rules.idle())
        self._tell(())
        self._busy = False
        if self._silence is not None and (alert := self._silence.alert(time.monotonic())) is not None:
            is_printed = self._prints and sys.stderr is not None
            self._tell([alert], is_printed=is_printed)
            if is_printed:  # the training process reads it only if it goes on
                print(folded(f"torcheer: {alert}"), file=sys.stderr)
            for fd in self._notifier_fds:  # as above
                notify_from(fd, alert)

    def close(self) -> None:
        """Judge the last step, close the log."""
        self._places.is_waiting = False
        self._tell(self._rules.close())
        if self._log is not None:
            self._log.close()

    @property
    def log_facts(self) -> dict[str, Any] | None:
        """The number of values in the log, and why there are no more; None without a log."""
        return None if self._log is None else {"written": self._log.written, "why": self._log.why}

    def _tell(self, alerts: Iterable[Alert], **facts: bool) -> None:
        for alert in self._places.name(alerts, time.monotonic()):
            self._told[alert.rule] = alert.step
            self._alert(self._log.alert(alert) if self._log is not None else alert, **facts)

    def _alert(self, alert: Alert, *, is_printed: bool = False) -> None:
        self._send_message({"kind": "alert", **asdict(alert)} | ({"is_printed": True} if is_printed else {}))

    def _problem(self, text: str) -> None:
        self._send_message({"kind": "problem", "text": text})


class AlertPlaces:
    """Names the class and the line of a module in alerts; those of the first pass wait until it has told its lines."""

    def __init__(self, plan: Plan) -> None:
        self._places, self.is_waiting = dict(plan.places), plan.awaits_lines
        self._held: list[Alert] = []
        self._held_since = 0.0

    def learn(self, places: dict[str, str]) -> None:
        """Take the places of modules that were called."""
        self._places, self.is_waiting = places, False

    def name(self, alerts: Iterable[Alert], now: float) -> list[Alert]:
        """The alerts that can be told now, with the places of their modules."""
        self._held_since = self._held_since if self._held else now
        self._held += alerts
        if self.is_waiting and now - self._held_since < _PLACES_SECS:
            return []
        held, self._held = self._held, []
        return [replace(alert, place=place_in(self._places, alert.layer, alert.variable)) for alert in held]


def _silence(rules: dict[str, Any]) -> Silence | None:
    loader = rules.get("stalled_loader")
    return Silence(loader["silent_secs"]) if loader else None


class Silence:
    """Detects that no steps arrive any more; alerts once, and rearms when they go on."""

    def __init__(self, least_secs: float) -> None:
        self._least_secs, self._alerted, self._longest = least_secs, False, 0.0
        # Of the last value: its step, when it arrived here, when it was sampled.
        self._step, self._arrived_at, self._taken_at = -1, 0.0, 0.0
        self._pauses: deque[float] = deque(maxlen=50)  # seconds between the values of two steps

    def end(self, step: int, now: float, taken: float) -> None:
        """Record a value; `taken` is when it was sampled, as it may have waited in the ring."""
        if step != self._step:
            if self._arrived_at:
                self._pauses.append(max(taken - self._taken_at, 0.0))
                self._longest = max(self._longest, self._pauses[-1])
            self._step, self._alerted = step, False
        self._arrived_at, self._taken_at = now, taken

    def alert(self, now: float) -> Alert | None:
        """The alert that nothing has arrived for far longer than usual, if so."""
        if self._alerted or len(self._pauses) < _LEAST_PAUSES:
            return None  # the usual pause is not known yet
        secs, usual = now - self._arrived_at, median(self._pauses)
        if secs < max(self._least_secs, _FACTOR * usual, 2 * self._longest):
            return None
        self._alerted = True
        what = f"nothing has come for {secs:,.0f} s, where {usual:.2g} s are usual between two looks"
        advice = "see whether the loop waits for data (with num_workers=0 an error or a hang shows where it is)"
        values = {"silent_secs": secs, "usual_secs": usual}
        return Alert("stalled_loader", "", "run", self._step, self._step, what, advice, values=values)
