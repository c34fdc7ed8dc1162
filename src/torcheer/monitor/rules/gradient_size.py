"""Rules on gradients: too large, too small."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import Any

from torcheer.monitor.rules.rule import GRADIENTS, Board, Finding, Rule, Seen, Verdict
from torcheer.samples import Delivery, Key


class ExplodingGradient(Rule):
    """A gradient is far larger than it ever was for long, or its numbers are huge."""

    name = "exploding_gradient"
    defaults = {"factor": 100.0, "size": 1000.0, "patience": 2}
    _looks = 10  # that make a norm usual

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._recent: dict[Key, deque[float]] = {}
        self._usual: dict[Key, float] = {}  # the largest median that a key had
        self._unit = 0.0  # how large the first gradient was, that of the last layer: a GradScaler multiplies it
        self._others: dict[str, float] = {}  # by variable, the median of all layers in the step before

    def wants(self, variable: str) -> bool:
        return variable in GRADIENTS

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        norm, count = seen.summary.norm, seen.summary.count
        if not count or not math.isfinite(norm):
            return
        size, usual = norm / math.sqrt(count), self._usual.get(seen.key, 0.0)
        unit = 1.0
        if seen.variable == "grad":
            unit = self._unit = self._unit or max(size, 1.0)
        advice = "lower the learning rate, clip the gradients (clip_grad_norm_), or begin with smaller weights"
        values = {"norm": norm, "usual": usual}
        if usual and norm > max(self.settings["factor"] * usual, 0.1 * self._others.get(seen.variable, 0.0)):
            what = f"its norm is {norm:.3g}, {norm / usual:,.0f} times what was usual"
            yield seen.key, Finding(what, advice, values, order=-norm / usual)
        elif size > self.settings["size"] * unit:
            yield seen.key, Finding(f"its numbers are {size:.3g} in the mean (root of mean square)", advice, values)
        else:
            self._learn(seen.key, norm)
            yield seen.key, None

    def end(self, board: Board) -> Iterator[Verdict]:
        for variable in GRADIENTS:  # one that grows from nearly nothing to far less than others have is no danger
            if found := [seen.summary.norm for seen in board.all(variable).values()]:
                self._others[variable] = median(found)
        return iter(())

    def _learn(self, key: Key, norm: float) -> None:
        recent = self._recent.setdefault(key, deque(maxlen=self._looks))
        recent.append(norm)
        if len(recent) == self._looks:
            self._usual[key] = max(self._usual.get(key, 0.0), median(recent))


class VanishingGradient(Rule):
    """A layer's gradient is a tiny part of what the other layers of the same step have."""

    name = "vanishing_gradient"
    defaults = {"ratio": 1e-4, "layers": 4, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._past: dict[str, deque[float]] = {variable: deque(maxlen=20) for variable in GRADIENTS}

    def end(self, board: Board) -> Iterator[Verdict]:
        for variable in GRADIENTS:
            found = [seen for seen in board.all(variable).values() if _counts(seen)]
            if len(found) < self.settings["layers"]:
                continue  # too few to say what is usual
            now, past = median(_norm(seen) for seen in found), self._past[variable]
            usual = min(now, 10 * median(past or [now]))  # where others explode, those that do not have not vanished
            past.append(usual)
            for seen in found:
                yield seen.key, self._judge(_norm(seen), usual, len(found))

    def _judge(self, norm: float, usual: float, layers: int) -> Finding | None:
        if not norm < self.settings["ratio"] * usual:
            return None
        what = f"its norm is {norm:.2g}, where the median of {layers} layers is {usual:.2g}"
        advice = "use ReLU or GELU instead of sigmoid or tanh, normalisation, residual connections, or an initialisation that suits the activation"  # noqa: E501
        return Finding(what, advice, {"norm": norm, "median": usual}, order=norm)


def _counts(seen: Seen) -> bool:
    """Whether a gradient says something: those of biases before a normalisation are zero but for rounding."""
    return seen.summary.norm > 0 and (seen.is_matrix if seen.variable == "weight_grad" else seen.summary.count > 1)


def _norm(seen: Seen) -> float:
    """A gradient's norm; of one that was sent in part, about what the whole one has."""
    return seen.summary.norm * math.sqrt(seen.summary.stride)
