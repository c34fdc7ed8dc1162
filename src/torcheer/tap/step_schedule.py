"""When to look: which steps of a run are watched."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torcheer.errors import BadArgument


@dataclass(frozen=True, slots=True)
class Every:
    """Watch every n-th step, or one whenever so many seconds have passed; from `start` on, before `end`.

    With both, a step must satisfy both: `Every(steps=20, secs=5)` looks at multiples of 20, at most every 5 seconds.
    """

    steps: int = 1
    secs: float = 0.0
    start: int = 0  # the first step that may be watched
    end: int | None = None  # the first that may not

    def __post_init__(self) -> None:
        for name, value, least in (("steps", self.steps, 1), ("start", self.start, 0), ("end", self.end, 1)):
            if value is None and name == "end":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadArgument(f"Every({name}={value!r}): a whole number from {least} on is needed")
        if isinstance(self.secs, bool) or not isinstance(self.secs, int | float) or not 0 <= self.secs < math.inf:
            raise BadArgument(f"Every(secs={self.secs!r}): a number of seconds is needed, 0 or more")
        if self.end is not None and self.end <= self.start:
            raise BadArgument(f"Every(start={self.start}, end={self.end}): no step lies between them")


def schedule_of(every: Any) -> Schedule:
    """What `every=` means."""
    if isinstance(every, Every):
        return Schedule(every)
    if isinstance(every, Mapping):
        return Schedule(_from_names(every))
    if isinstance(every, bool) or not isinstance(every, int):
        hint = f"; for seconds use Every(secs={every:g})" if isinstance(every, float) and every > 0 else ""
        raise BadArgument(f"every={every!r}: a whole number of steps is needed, or Every(steps=…, secs=…){hint}")
    if every < 1:
        raise BadArgument(f"every={every}: 1 watches every step, 20 every 20th; to watch none, leave the watch out")
    return Schedule(Every(steps=every))


def _from_names(given: Mapping[str, Any]) -> Every:
    known = [field.name for field in fields(Every)]
    if strange := [name for name in given if name not in known]:
        raise BadArgument(f"every={dict(given)!r}: no setting {strange[0]!r}; there are {', '.join(known)}")
    return Every(**given)


class Pace:
    """How many steps go by in a moment: so many may pass before anybody asks again."""

    MOMENT_SECS = 0.2
    _MOST = 1000

    def __init__(self) -> None:
        self.asked_at, self._asked_step, self._steps = time.monotonic(), 0, 0

    def take(self, step: int, now: float) -> None:
        """Somebody asks; a sudden change of pace is not trusted."""
        steps = (step - self._asked_step) * self.MOMENT_SECS / max(now - self.asked_at, 1e-6)
        self._steps = int(min(steps, 2 * self._steps + 1, self._MOST))
        self.asked_at, self._asked_step = now, step

    def quiet(self, steps: float, secs: float) -> int:
        """How many steps may pass where nothing is due for so many steps, or for so many seconds."""
        return int(max(min(max(steps, self._steps * secs / self.MOMENT_SECS), self._steps), 0))


class Schedule:
    """An `Every` over time."""

    def __init__(self, every: Every) -> None:
        self.every = every
        self.next_step: float = every.start + -every.start % every.steps  # no step before this one needs to ask
        self._last_step, self._last_secs = -1, -math.inf

    def change(self, every: Any) -> None:
        """Go by another `every=` from now on."""
        new = schedule_of(every)
        self.every, self.next_step = new.every, new.next_step

    def due(self, step: int, now_secs: float) -> bool:
        """Whether to watch a step; they are asked about in order, and a smaller number begins anew (an epoch's own)."""
        if step < self._last_step:
            self.next_step = 0
        self._last_step = step
        if step < max(self.next_step, self.every.start):
            return False
        self.next_step = step + self.every.steps - step % self.every.steps
        if self.every.end is not None and step >= self.every.end:
            self.next_step = math.inf
            return False
        if step % self.every.steps or now_secs - self._last_secs < self.every.secs:
            return False
        self._last_secs = now_secs
        return True

    def rest(self, step: int, now_secs: float) -> tuple[float, float]:
        """After a step, for how many steps, and for how many seconds, nothing is due."""
        return self.next_step - step - 1, max(self._last_secs + self.every.secs - now_secs, 0.0)
