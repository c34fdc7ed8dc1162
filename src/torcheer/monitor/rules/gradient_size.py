"""Rules on gradients: too large, too small."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import Any

from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict
from torcheer.samples import Delivery, Key
from torcheer.vocabulary.variables import GRADIENTS


class ExplodingGradient(Rule):
    """A gradient is far larger than it ever was for long, or its numbers are huge."""

    name = "exploding_gradient"
    defaults = {"factor": 100.0, "size": 1000.0, "patience": 2}
    _baseline_steps = 10  # watched steps whose median norm becomes the baseline

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._recent: dict[Key, deque[float]] = {}
        self._usual: dict[Key, float] = {}  # the largest median of each key
        self._unit = 0.0  # size of the first gradient, that of the last layer: a GradScaler multiplies it
        self._medians: dict[str, float] = {}  # by variable, the median norm of all layers in the previous step

    def wants(self, variable: str) -> bool:
        return variable in GRADIENTS

    def observe(self, value: Observation, delivery: Delivery, step_values: StepValues) -> Iterator[Verdict]:
        norm, count = value.summary.norm, value.summary.count
        if not count or not math.isfinite(norm):
            return
        size, usual = norm / math.sqrt(count), self._usual.get(value.key, 0.0)
        unit = 1.0
        if value.variable == "grad":
            unit = self._unit = self._unit or max(size, 1.0)
        advice = "lower the learning rate, clip the gradients (clip_grad_norm_), or begin with smaller weights"
        values = {"norm": norm, "usual": usual}
        if usual and norm > max(self.settings["factor"] * usual, 0.1 * self._medians.get(value.variable, 0.0)):
            text = f"its norm is {norm:.3g}, {norm / usual:,.0f} times what was usual"
            yield value.key, Finding(text, advice, values, order=-norm / usual)
        elif size > self.settings["size"] * unit:
            yield (
                value.key,
                Finding(f"its numbers are {size:.3g} in the mean (root of mean square)", advice, values),
            )
        else:
            self._learn(value.key, norm)
            yield value.key, None

    def end(self, step_values: StepValues) -> Iterator[Verdict]:
        for variable in GRADIENTS:  # growth from almost zero to far below the others is harmless
            if norms := [value.summary.norm for value in step_values.all(variable).values()]:
                self._medians[variable] = median(norms)
        return iter(())

    def _learn(self, key: Key, norm: float) -> None:
        recent = self._recent.setdefault(key, deque(maxlen=self._baseline_steps))
        recent.append(norm)
        if len(recent) == self._baseline_steps:
            self._usual[key] = max(self._usual.get(key, 0.0), median(recent))


class VanishingGradient(Rule):
    """A layer's gradient is a tiny part of what the other layers of the same step have."""

    name = "vanishing_gradient"
    defaults = {"ratio": 1e-4, "layers": 4, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._past_medians: dict[str, deque[float]] = {variable: deque(maxlen=20) for variable in GRADIENTS}

    def end(self, step_values: StepValues) -> Iterator[Verdict]:
        for variable in GRADIENTS:
            gradients = [value for value in step_values.all(variable).values() if _is_meaningful(value)]
            if len(gradients) < self.settings["layers"]:
                continue  # too few for a median
            current, past = median(_norm(value) for value in gradients), self._past_medians[variable]
            usual = min(current, 10 * median(past or [current]))  # where others explode, the rest have not vanished
            past.append(usual)
            for value in gradients:
                yield value.key, self._judge(_norm(value), usual, len(gradients))

    def _judge(self, norm: float, usual: float, layers: int) -> Finding | None:
        if not norm < self.settings["ratio"] * usual:
            return None
        text = f"its norm is {norm:.2g}, where the median of {layers} layers is {usual:.2g}"
        advice = "use ReLU or GELU instead of sigmoid or tanh, normalisation, residual connections, or an initialisation that suits the activation"  # noqa: E501
        return Finding(text, advice, {"norm": norm, "median": usual}, order=norm)


def _is_meaningful(value: Observation) -> bool:
    """Whether a gradient is meaningful: those of biases before a normalisation are zero except for rounding."""
    return value.summary.norm > 0 and (value.is_matrix if value.variable == "weight_grad" else value.summary.count > 1)


def _norm(value: Observation) -> float:
    """A gradient's norm; for a subsample, the estimate for the full tensor."""
    return value.summary.norm * math.sqrt(value.summary.stride)
