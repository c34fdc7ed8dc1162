"""How often a state is recorded: which trials are due, within a time budget."""

from __future__ import annotations

import time
from typing import Final

from torcheer.control.control_records import Every, Wants

SHARE: Final = 150  # "auto": after a record that took c seconds, the next is due 150·c later: 0.7% of the time
LEAST_SECS: Final = 0.05  # "auto": between two records, 20 a second

_MOST_WAITING: Final = 3  # wall time over CPU time on a busy machine; beyond that it was a stall

Stamp = tuple[float, float]


def stamp() -> Stamp:
    """The current wall-clock time and this thread's CPU time, in seconds."""
    return time.perf_counter(), time.thread_time()


def cost(since: Stamp) -> float:
    """Seconds since a stamp, capped by the thread's CPU time.

    Without the cap, one stall of 0.3 s would stop "auto" recording for half a minute.
    """
    now, worked = stamp()
    return min(now - since[0], _MOST_WAITING * (worked - since[1]))


class Budget:
    """Decides which trials are recorded, separately for training and testing.

    budget = Budget()
    if budget.due(time.monotonic(), host.wants): …record…; budget.spent(secs, time.monotonic())
    """

    def __init__(self) -> None:
        self._trials = {False: 0, True: 0}  # since the last recorded one; keyed by whether it is a test
        self._epochs = {False: 0, True: 0}
        self._rules: dict[bool, Every] = {}
        self.next_at = 0.0  # when "auto" allows the next

    def due(self, now: float, wants: Wants, test: bool = False, epoch: bool = False) -> bool:
        """True if this trial is to be recorded; call once per trial.

        `epoch`: it is the last of its epoch.
        """
        if not wants.variables and not wants.weights and not wants.units:
            return False
        every = wants.test if test else wants.train
        if self._rules.get(test) != every:  # the setting has just changed: record the next trial
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
        """Account for a record that took `secs` and ended at `now`."""
        self.next_at = now + max(SHARE * max(secs, 0.0), LEAST_SECS)
