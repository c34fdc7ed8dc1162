"""The schedule of a watch, or of captures during training: which steps of a run are due."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass


@dataclass(frozen=True, slots=True)
class Every(metaclass=PublicClass):
    """Watch every n-th step, or one whenever so many seconds have passed; from `start` on, before `end`.

    With both, a step must satisfy both: `Every(steps=20, secs=5)` looks at multiples of 20, at most every 5 seconds.

    - `steps`: watch multiples of this number of steps; 1 by default: every step.
    - `secs`: seconds, at least, between two steps that are watched; 0 by default.
    - `start`: the first step that may be watched; 0 by default.
    - `end`: the first that may not; None: no end.
    """

    steps: int = 1
    secs: float = 0.0
    start: int = 0
    end: int | None = None

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
    """Parse the setting `every=`."""
    if isinstance(every, Every):
        return Schedule(every)
    if isinstance(every, Mapping):
        return Schedule(_from_mapping(every))
    if isinstance(every, bool) or not isinstance(every, int):
        hint = f"; for seconds use Every(secs={every:g})" if isinstance(every, float) and every > 0 else ""
        raise BadArgument(f"every={every!r}: a whole number of steps is needed, or Every(steps=…, secs=…){hint}")
    if every < 1:
        raise BadArgument(f"every={every}: 1 watches every step, 20 every 20th; to watch none, leave the watch out")
    return Schedule(Every(steps=every))


def _from_mapping(settings: Mapping[str, Any]) -> Every:
    names = [field.name for field in fields(Every)]
    if unknown := [name for name in settings if name not in names]:
        raise BadArgument(f"every={dict(settings)!r}: no setting {unknown[0]!r}; there are {', '.join(names)}")
    return Every(**settings)


class Pace:
    """Estimates the steps per `MOMENT_SECS`, so that the clock is read only once in so many steps."""

    MOMENT_SECS = 0.2
    _MOST_STEPS = 1000

    def __init__(self) -> None:
        self.measured_at, self._measured_step, self._steps = time.monotonic(), 0, 0

    def measure(self, step: int, now_secs: float) -> None:
        """Measure at a step; a sudden speed-up is taken over gradually."""
        steps = (step - self._measured_step) * self.MOMENT_SECS / max(now_secs - self.measured_at, 1e-6)
        self._steps = int(min(steps, 2 * self._steps + 1, self._MOST_STEPS))
        self.measured_at, self._measured_step = now_secs, step

    def idle_steps(self, steps: float, secs: float) -> int:
        """How many steps may pass unmeasured where nothing is due for so many steps, or for so many seconds."""
        return int(max(min(max(steps, self._steps * secs / self.MOMENT_SECS), self._steps), 0))


class Schedule:
    """The state of an `Every` during a run; `after` is the last step that was seen before, None where that is unknown.

    Loops whose models take turns skip numbers: of every n steps the first that comes is due.
    """

    def __init__(self, every: Every, after: int | None = None) -> None:
        self.every = every
        first = every.start if after is None else max(every.start, after + 1)
        self.next_step: float = first + -first % every.steps  # no step before this one can be due
        self._last_step, self._last_secs = after, -math.inf

    def change(self, every: Any) -> None:
        """Switch to another `every=`."""
        new = schedule_of(every)
        self.every, self.next_step = new.every, new.next_step

    def due(self, step: int, now_secs: float = 0.0) -> bool:
        """Whether to watch a step; called in order of steps, a smaller number starts over (counted per epoch)."""
        last, steps = self._last_step, self.every.steps
        if last is None or step < last:
            last, self.next_step = step - 1, 0 if last is not None else self.next_step
        self._last_step = step
        if step < max(self.next_step, self.every.start):
            return False
        self.next_step = step + steps - step % steps
        if self.every.end is not None and step >= self.every.end:
            self.next_step = math.inf
            return False
        is_first = step // steps > last // steps if not self.every.secs else not step % steps
        if not is_first or now_secs - self._last_secs < self.every.secs:
            return False
        self._last_secs = now_secs
        return True

    def idle_for(self, step: int, now_secs: float) -> tuple[float, float]:
        """The number of steps, and of seconds, after a step in which nothing is due."""
        return self.next_step - step - 1, max(self._last_secs + self.every.secs - now_secs, 0.0)
