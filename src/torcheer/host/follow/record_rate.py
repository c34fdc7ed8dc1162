"""How often a state is recorded."""

from __future__ import annotations

import time
from typing import Final

from torcheer.control.control_records import Every, Wants

SHARE: Final = 100  # "auto": after a record that took c seconds, the next is due 100·c later: 1% of the time
LEAST_SECS: Final = 0.05  # "auto": between two records, 20 a second

_MOST_WAITING: Final = 3  # a busy machine makes work this much longer; what is more was a hiccup

Stamp = tuple[float, float]


def stamp() -> Stamp:
    """When it is now, by the clock and by this thread's work."""
    return time.perf_counter(), time.thread_time()


def cost(since: Stamp) -> float:
    """How long something took, in seconds; where the thread mostly waited, by its work: or one hiccup of 0.3 s would
    stop an "auto" for half a minute."""
    now, worked = stamp()
    return min(now - since[0], _MOST_WAITING * (worked - since[1]))


class Budget:
    """Says which trials are recorded, for training and testing apart.

    budget = Budget()
    if budget.due(time.monotonic(), host.wants): …record…; budget.spent(secs, time.monotonic())
    """

    def __init__(self) -> None:
        self._trials = {False: 0, True: 0}  # since the last one that was recorded; by whether they test
        self._epochs = {False: 0, True: 0}
        self._rules: dict[bool, Every] = {}
        self.next_at = 0.0  # when "auto" allows the next

    def due(self, now: float, wants: Wants, test: bool = False, epoch: bool = False) -> bool:
        """Whether this trial is to be recorded; ask once for each. `epoch` says that it is the last of an epoch."""
        if not wants.variables and not wants.weights and not wants.units:
            return False
        every = wants.test if test else wants.train
        if self._rules.get(test) != every:  # somebody has just chosen: begin with what comes next
            self._rules[test] = every
            self._trials[test] = self._epochs[test] = max(every.count, 1) - 1
        match every.unit:
            case "auto":
                return now >= self.next_at
            case "trial":
                return self._count(self._trials, test, every.count)
            case "epoch":
                return epoch and self._count(self._epochs, test, every.count)
            case _:
                return False

    @staticmethod
    def _count(counts: dict[bool, int], test: bool, apart: int) -> bool:
        counts[test] += 1
        if counts[test] < apart:
            return False
        counts[test] = 0
        return True

    def spent(self, secs: float, now: float) -> None:
        """A record took so long and ended now."""
        self.next_at = now + max(SHARE * max(secs, 0.0), LEAST_SECS)
