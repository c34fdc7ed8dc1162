"""The range of numbers that a video's frames share, and numbers as a label shows them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALM = 30  # frames in a row that must need far less before a range shrinks
ROUND = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(slots=True)
class Scale:
    """The range of one key's pictures, which seldom changes: a colour means the same number from frame to frame.

    It grows at once, to a round number. It shrinks when 30 frames in a row needed less than a third of it. Once a
    number was negative it has zero in its middle, and stays so.
    """

    low: float = 0.0
    high: float = 0.0
    signed: bool = False
    calm: int = 0  # frames in a row that needed far less
    least: float = math.inf  # the smallest number of those frames
    most: float = -math.inf  # and their largest

    def follow(self, minimum: float, maximum: float) -> None:
        """Update the range with the smallest and largest finite number of the next frame."""
        if not minimum <= maximum or minimum == maximum == 0:  # no finite numbers, or only zeros
            return
        self.signed = self.signed or minimum < 0
        if self.low == self.high:
            self._set(minimum, maximum)
        elif minimum < self.low or maximum > self.high:
            self._set(min(minimum, self.low), max(maximum, self.high))
        elif self._far_too_wide(minimum, maximum):
            self._set(self.least, self.most)

    def _far_too_wide(self, minimum: float, maximum: float) -> bool:
        if maximum / 2 - minimum / 2 > (self.high / 2 - self.low / 2) / 3:
            self.calm, self.least, self.most = 0, math.inf, -math.inf
            return False
        self.calm, self.least, self.most = self.calm + 1, min(self.least, minimum), max(self.most, maximum)
        return self.calm >= CALM

    def _set(self, minimum: float, maximum: float) -> None:
        self.calm, self.least, self.most = 0, math.inf, -math.inf
        step = round_up(maximum - minimum) / 4 if not self.signed else 0.0
        if self.signed:
            self.high = round_up(max(abs(minimum), abs(maximum))) or 1.0
            self.low = -self.high
        elif minimum < maximum / 2 or not step:  # the least numbers there are have no quarter
            self.low, self.high = 0.0, max(round_up(maximum), maximum) or 1.0
        else:  # all far from zero: starting at zero would waste the range
            self.low = max(0.0, math.floor(minimum / step) * step)
            self.high = max(math.ceil(maximum / step) * step, maximum)


def along(values: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """How far each number lies from `low`, 0, to `high`, 1; all at 0 where these are one.

    >>> along(np.array([-1.0, 0.0, 1.0]), -1, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    half = high / 2 - low / 2  # halves, as the difference may overflow
    if not half > 0:
        return np.zeros(values.shape)
    with np.errstate(all="ignore"):
        if values.dtype == np.float32 and not 1e-30 < half < 1e30:  # nor may it be more than a float32 can be
            return (values.astype(np.float64) - low) / (2 * half)
        return (values / 2 - low / 2) / half


def round_up(number: float) -> float:
    """The next round number that is not smaller.

    >>> round_up(0.37), round_up(2.2), round_up(97)
    (0.4, 3.0, 100.0)
    """
    if not 0 < number < math.inf:
        return 0.0
    power = math.floor(math.log10(number))
    for factor in ROUND:
        candidate = float(f"{factor}e{power}")
        if number <= candidate < math.inf:
            return candidate
    return number  # at the end of what a number can be


def label(number: float) -> str:
    """A number in at most seven characters or so.

    >>> label(0.5), label(-1234567), label(3), label(0.00002)
    ('0.5', '−1.23e6', '3', '2e-5')
    """
    if number == 0 or math.isfinite(number) is False:
        return "0" if number == 0 else str(number)
    text = f"{number:.3g}" if not 1000 <= abs(number) < 100000 else f"{number:.0f}"
    mantissa, _, power = text.partition("e")
    return (mantissa + (f"e{int(power)}" if power else "")).replace("-", "−", 1 if mantissa[0] == "-" else 0)
