"""The rule on losses that jump: a loss far above everything that was usual just before it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from torcheer.monitor.rules.metric_rules import is_held_out
from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict
from torcheer.samples import Delivery

_NORMAL_MAD = 1.4826  # standard deviations of normal noise in a median absolute deviation
_MAD_FACTOR = 8.0  # times that: no normal noise reaches it
_LOG_FACTOR = 1.5  # of a positive loss: its logarithm must exceed the largest usual one by so much
_SIGNED_FACTOR = 2.0  # times `factor` where losses may be negative, and their ratios say nothing
_FIRST = 10  # losses that say where training came from
_REFRESH = 10  # losses between two medians
_CALM = 20  # usual losses after which a spike is over
_BLOCK, _BLOCKS = 100, 10  # losses whose largest height is remembered as one; so many of those
_OFTEN = 5  # spikes within a block of all those are usual


class LossSpike(Rule):
    """A loss jumps far above what it was in the last steps, as after a bad batch; each jump is told once."""

    name = "loss_spike"
    defaults = {"metric": "loss", "factor": 3.0, "rise": 0.5, "done": 0.2, "window": 100, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._levels: dict[str, LossLevel] = {}

    def wants(self, variable: str) -> bool:
        return variable == "metric"

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if self.settings["metric"] not in value.layer.lower() or is_held_out(value, self.settings["metric"]):
            return
        level = self._levels.get(value.layer)
        if level is None:
            level = self._levels[value.layer] = LossLevel(self.settings)
        spike = level.add(value.summary.mean)
        yield value.key, None if spike is None else spike.finding


class Spike(NamedTuple):
    """A loss that stands out."""

    loss: float
    usual: float  # the median of the losses before it
    largest: float  # of them
    among: int  # how many those are

    @property
    def finding(self) -> Finding:
        """What people are told."""
        text = (
            f"it jumped to {self.loss:.4g}: in the {self.among} before it the median is {self.usual:.4g}, "
            f"the largest {self.largest:.4g}"
        )
        advice = "look at this step's batch for wrong labels or inputs and leave it out; if it comes back, clip the gradients or lower the learning rate"  # noqa: E501
        return Finding(text, advice, {"loss": self.loss, "usual": self.usual, "largest": self.largest})


class LossLevel:
    """What is usual for a loss, and whether the next one begins a spike.

    Usual is the median of the last losses (`window`), and how far above it losses went in the last thousand: positive
    ones by their ratio to it, whose logarithm must stand out as well, since losses of small batches are skewed; others
    in units of the median absolute deviation. A spike is over after 20 usual losses; spikes in a row for half a window
    are a new level, and five apart within a thousand losses are usual by then.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._factor, self._rise, self._done = (float(settings[name]) for name in ("factor", "rise", "done"))
        self._losses: deque[float] = deque(maxlen=settings["window"])
        self._spikes: list[float] = []  # the last losses, where all of them are spikes
        self._calm = 0  # usual losses since the last spike
        self._usual = self._deviation = 0.0
        self._begin: float | None = None  # the size of the first losses, where training came from
        self._since_median = 0  # losses
        self._is_signed = False
        self._heights = Heights()
        self._newest = 0.0  # the largest height of the newest half of the losses, as the median is now

    def add(self, loss: float) -> Spike | None:
        """Add the loss of the next step; return it as a spike if one begins with it."""
        if not math.isfinite(loss):
            return None
        if loss <= 0 and not self._is_signed:
            self._is_signed = True
            self._restart(self._losses)
        heights = self._heights
        height = self._height(loss) if heights.is_known else 0.0
        is_usual = height <= max(heights.largest, self._newest) or not heights.is_known  # as nearly every loss is
        begins = self._calm >= _CALM
        if is_usual or not self._is_spike(loss, height) or (begins and heights.is_often(height)):
            self._spikes.clear()
            self._calm += 1
            self._learn(loss, height)
            return None
        self._calm = 0
        self._spikes.append(loss)
        if 2 * len(self._spikes) >= (self._losses.maxlen or 0):
            self._restart(self._spikes)
        return Spike(loss, self._usual, max(self._losses), len(self._losses)) if begins else None

    def _learn(self, loss: float, height: float) -> None:
        losses = self._losses
        losses.append(loss)
        if self._heights.is_known:
            self._heights.add(height)
        if self._begin is None and len(losses) == _FIRST:
            self._begin = abs(median(losses))
        self._since_median += 1
        if self._since_median >= _REFRESH and len(losses) == losses.maxlen:
            self._refresh()

    def _refresh(self) -> None:
        """Take the medians anew, and how far the newest losses are above them: a loss that falls leaves them behind."""
        losses, self._since_median = list(self._losses), 0
        ordered = sorted(losses)
        usual = self._usual = median_of_sorted(ordered)
        # Two runs, one falling and one rising, which take no time to sort.
        away = sorted([usual - loss if loss < usual else loss - usual for loss in ordered])
        self._deviation = _NORMAL_MAD * median_of_sorted(away)
        self._newest = self._height(max(losses[len(losses) // 2 :]))  # a larger loss is higher
        if not self._heights.is_known:
            self._heights.add(self._newest)

    def _restart(self, losses: Iterable[float]) -> None:
        """Begin anew with these losses: a new level, or another unit of heights."""
        known = list(losses)
        self._losses.clear()
        self._losses.extend(known)
        self._spikes.clear()
        self._heights, self._newest = Heights(), 0.0
        self._since_median = _REFRESH

    def _height(self, loss: float) -> float:
        """How far a loss is above the usual."""
        if self._is_signed:
            return (loss - self._usual) / max(self._deviation, self._done * (self._begin or 0.0), 1e-30)
        return math.log(loss / self._usual)

    def _is_spike(self, loss: float, height: float) -> bool:
        """Whether a loss, higher than all before it, is one."""
        largest = max(self._heights.largest, self._newest)
        least = max(_MAD_FACTOR * self._deviation, self._rise * abs(self._usual), self._done * (self._begin or 0.0))
        if loss - self._usual <= least or loss <= max(self._losses):
            return False
        if self._is_signed:
            return height > _SIGNED_FACTOR * self._factor * largest
        return height > _LOG_FACTOR * largest and math.expm1(height) > self._factor * math.expm1(largest)


class Heights:
    """The largest height of about the last thousand losses, by blocks."""

    def __init__(self) -> None:
        self._blocks: deque[float] = deque(maxlen=_BLOCKS)
        self._largest, self._count = 0.0, 0  # of the block under way
        self._losses, self._rare = 0, deque[tuple[int, float]](maxlen=_OFTEN)  # of spikes: when, how high
        self.largest = 0.0  # of them; 0 where none is above the usual
        self.is_known = False  # True once there was one

    def add(self, height: float) -> None:
        """Add the height of the next loss."""
        self.is_known = True
        self._count, self._losses = self._count + 1, self._losses + 1
        if height > self._largest:
            self._largest = height
            self.largest = max(self.largest, height)
        if self._count == _BLOCK:
            self._blocks.append(self._largest)
            self.largest = max(self._blocks)
            self._largest, self._count = 0.0, 0

    def is_often(self, height: float) -> bool:
        """Add the height of a spike; whether there were so many lately that it is usual."""
        self._rare.append((self._losses, height))
        if len(self._rare) < _OFTEN or self._losses - self._rare[0][0] > _BLOCK * _BLOCKS:
            return False
        self._rare.clear()
        return True


def median_of_sorted(values: Sequence[float]) -> float:
    """The median of values that are sorted."""
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
