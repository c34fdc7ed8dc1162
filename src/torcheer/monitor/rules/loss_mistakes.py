"""Rules on the loss and the last layer: an unintended factor, an activation that the loss applies again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from torcheer.monitor.rules.loss_fits import Fit
from torcheer.monitor.rules.metric_rules import is_training
from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict
from torcheer.samples import Delivery, Key

_ACCUMULATED = 32  # passes by which a loss may be divided


class LossScale(Rule):
    """The loss is multiplied by a factor that makes all gradients far too large or small, as they leave the loss."""

    name = "loss_scale"
    defaults = {"large": 8.0, "small": 1e-3, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._verdict: tuple[Key, Finding | None] | None = None
        self._by_design = False  # a GradScaler multiplied the loss and unscales the gradients
        self._gradient: tuple[int, Key, float, int] | None = None  # step, key, squared norm, numbers
        self._squares: deque[tuple[float, float]] = deque(maxlen=2)  # loss, and its factor if it is a mean of squares

    def wants(self, variable: str) -> bool:
        return variable in ("output", "grad", "update", "metric")

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if value.variable == "metric":
            yield from self._by_squares(value, values.step)
        elif value.variable == "update":
            self._by_design = self._by_design or delivery.scaled
        elif (fits := values.loss_gradient.fits(value, delivery, values.step)) is not None:
            if fits:
                self._verdict = value.key, self._judge(fits[0])
            else:
                self._gradient = values.step, value.key, value.summary.norm**2, value.summary.count

    def end(self, values: StepValues) -> Iterator[Verdict]:
        verdict, self._verdict = self._verdict, None
        if verdict is not None:
            yield verdict[0], None if self._by_design else verdict[1]

    def _judge(self, fit: Fit) -> Finding | None:
        is_usual = fit.scale <= self.settings["large"] and fit.factor >= self.settings["small"]
        if is_usual or not fit.even or _is_scaler_factor(fit.factor):  # uneven factors, such as rewards, are intended
            return None
        return _finding(fit.factor, f"a mean {fit.name} gives")

    def _by_squares(self, value: Observation, step: int) -> Iterator[Verdict]:
        """Judge by a property of a mean of squares: its gradient's squared norm is a fixed multiple of the loss."""
        loss, gradient = value.summary.mean, self._gradient
        if gradient is None or gradient[0] != step or not is_training(value, "loss") or not 0 < loss < math.inf:
            return
        self._gradient = None
        _, key, squared, numbers = gradient
        self._squares.append((loss, squared * numbers / (4 * loss)))
        losses, factors = zip(*self._squares)
        if len(factors) < 2 or max(factors) > 1.001 * min(factors) or max(losses) < 1.02 * min(losses):
            return  # another loss, or undecidable
        large, small = self.settings["large"] * numbers, 0.2 * self.settings["small"]
        is_usual = small <= factors[-1] <= large or _is_scaler_factor(math.sqrt(factors[-1])) or self._by_design
        yield key, None if is_usual else _finding(factors[-1], "a mean of squares gives for the loss that was logged")


def _finding(factor: float, usual: str) -> Finding:
    size = "large" if factor > 1 else "small"
    text = f"the loss is scaled: the gradient that it gives is {factor:.3g} times what {usual}"
    advice = f"take the factor out of the loss; it makes every gradient too {size}, whatever the layers do"
    return Finding(text, advice, {"factor": factor})


def _is_scaler_factor(factor: float) -> bool:
    """Whether a factor is a power of two, like a GradScaler's; also for a loss divided by accumulated passes."""
    if not factor > 1:
        return False
    exponents = np.log2(factor * np.arange(1, _ACCUMULATED + 1))
    return bool(np.any(np.abs(exponents - np.round(exponents)) < 4e-4))


class ActivationTwice(Rule):
    """The loss applies softmax or sigmoid itself, and gets what has already been through one."""

    name = "activation_twice"
    defaults = {"patience": 3}
    _words = {
        "softmax": (
            "a softmax, and the cross entropy applies another",
            "give cross_entropy the numbers before softmax",
        ),
        "sigmoid": (
            "a sigmoid, and the loss applies another",
            "use binary_cross_entropy, or give binary_cross_entropy_with_logits the numbers before the sigmoid",
        ),
        "no log": (
            "a softmax, and nll_loss expects logarithms",
            "use log_softmax before nll_loss, or cross_entropy alone",
        ),
    }

    def wants(self, variable: str) -> bool:
        return variable in ("output", "grad")

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        fits = values.loss_gradient.fits(value, delivery, values.step)
        if not fits:
            return
        if not fits[0].twice:
            yield value.key, None
            return
        activation, advice = self._words[fits[0].twice]
        yield value.key, Finding(f"what the loss gets has been through {activation}: hardly a gradient is left", advice)
