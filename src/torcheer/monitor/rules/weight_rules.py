"""Rules on weights: their initialisation and their updates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from torcheer.encoding import real_numbers
from torcheer.monitor.rules.dead_units import lower_bound
from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict, array_of
from torcheer.samples import Delivery, Key
from torcheer.vocabulary.array_statistics import Statistics

_ADVICE_WITH_GRADIENT = "give it to the optimizer, with a learning rate that its gradient is large enough for"
_ADVICE_WITH_STEPS = (
    "see that gradients arrive; if they do, raise the learning rate: steps may be too small for such numbers"
)
_ADVICE_WITHOUT_GRADIENT = (
    "see that a gradient reaches it and the optimizer has it; if it is frozen on purpose, all is well"
)


class Unchanged(Rule):
    """A weight matrix that may change stays as it is while others change, or nothing changes at all."""

    name = "unchanged"
    defaults = {"patience": 10, "all_patience": 100}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._fingerprints: dict[
            str, tuple[tuple[float, ...], int]
        ] = {}  # fingerprint of each weight, and since which step
        self._idle_steps = 0  # steps in a row in which no weight changed

    def end(self, values: StepValues) -> Iterator[Verdict]:
        observations = values.all("weight").items()
        weights = {layer: value for layer, value in observations if value.is_matrix and not value.frozen}
        compared = [layer for layer in weights if layer in self._fingerprints]
        same = [layer for layer in compared if self._fingerprints[layer][0] == _fingerprint(weights[layer].summary)]
        for layer, value in weights.items():
            if layer not in same:
                self._fingerprints[layer] = _fingerprint(value.summary), values.step
        if compared:
            yield from (
                self._judge_all(same, values)
                if len(same) == len(compared)
                else self._judge_some(compared, same, values)
            )

    def _judge_some(self, compared: list[str], same: list[str], values: StepValues) -> Iterator[Verdict]:
        self._idle_steps = 0
        gradients = values.all("weight_grad")
        for layer in compared:
            if layer not in same:
                yield (layer, "weight"), None
            else:
                text = f"it does not change, while {len(compared) - len(same):,} of {len(compared):,} weights do"
                if layer in gradients and gradients[layer].summary.norm > 0:
                    text, advice = f"{text}, though it gets a gradient", _ADVICE_WITH_GRADIENT
                elif layer in values.all("update"):
                    text, advice = f"{text}, though an optimizer steps it", _ADVICE_WITH_STEPS
                else:
                    advice = _ADVICE_WITHOUT_GRADIENT
                yield (layer, "weight"), Finding(text, advice, since=self._fingerprints[layer][1])

    def _judge_all(self, same: list[str], values: StepValues) -> Iterator[Verdict]:
        """Judge a step in which no weight changed; gradient accumulation has some, but not many in a row."""
        self._idle_steps += 1
        first = same[0]
        if self._idle_steps >= self.settings["all_patience"]:
            text = f"none of the {len(same):,} watched weights changes"
            advice = "call optimizer.step(), with these parameters and a learning rate above 0"
            if first in values.all("update"):
                text, advice = f"{text}, though an optimizer steps them", _ADVICE_WITH_STEPS
            yield (first, "weight"), Finding(text, advice, since=self._fingerprints[first][1])


def _fingerprint(statistics: Statistics) -> tuple[float, ...]:
    return tuple(
        0.0 if math.isnan(number) else number
        for number in (
            statistics.minimum,
            statistics.maximum,
            statistics.mean,
            statistics.std,
            statistics.norm,
            statistics.nans,
        )
    )


class UpdateRatio(Rule):
    """An optimizer's step changes a weight matrix by too much of its norm, or by less than float32 can hold."""

    name = "update_ratio"
    defaults = {"low": 1e-7, "high": 0.1, "after": 10, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._counts: Counter[str] = Counter()
        self._norms: dict[str, float] = {}  # of the weights; with gradient accumulation the update comes later

    def wants(self, variable: str) -> bool:
        return variable in ("weight", "update")

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if value.variable == "weight":
            self._norms[value.layer] = value.summary.norm
            return
        norm = self._norms.get(value.layer, 0.0)
        if not value.is_matrix or not norm > 0 or not value.summary.norm > 0:
            return  # `unchanged` reports updates of zero
        self._counts[value.layer] += 1
        if self._counts[value.layer] > self.settings["after"]:
            yield value.key, self._judge(value.summary.norm / norm)

    def _judge(self, ratio: float) -> Finding | None:
        low, high = self.settings["low"], self.settings["high"]
        if low <= ratio <= high:
            return None
        if ratio > high:
            kind, text = "high", f"a step changes it by {ratio:.3g} of its norm, more than {high:g}"
            advice = "lower the learning rate"
        else:
            kind, text = "low", f"a step changes it by {ratio:.2g} of its norm, less than {low:g}"
            advice = "raise the learning rate, or see why its gradient is so small"
        return Finding(text, advice, {"ratio": ratio}, order=-abs(math.log(ratio)), kind=kind)


class PoorInitialisation(Rule):
    """Weights begin all alike, or what the inputs differ in grows or shrinks through the layers by powers of ten."""

    name = "poor_initialisation"
    defaults = {"factor": 1e6, "layers": 5, "until": 10, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._first_step: int | None = None
        self._signals: dict[str, float] = {}  # by layer, in order
        self._found: set[Key] = set()  # until the beginning is over
        self._judged: set[str] = set()  # weights that were judged

    def wants(self, variable: str) -> bool:
        return variable == "output"

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if self._first_step in (None, values.step) and values.step <= self.settings["until"]:
            self._first_step = values.step
            signal, before = _signal(value, delivery), next(reversed(self._signals.values()), 0.0)
            if before > 1 and lower_bound(value, values.before) is not None:
                self._signals.clear()  # a sigmoid or tanh bounds what goes into it: `saturation` judges that
            self._signals[value.layer] = signal
        return iter(())

    def end(self, values: StepValues) -> Iterator[Verdict]:
        for key, finding in self._judge_beginning(values):
            if finding is not None:
                self._found.add(key)
            yield key, finding

    def _judge_beginning(self, values: StepValues) -> Iterator[Verdict]:
        if values.step > self.settings["until"]:
            over, self._found = self._found, set()
            yield from ((key, None) for key in over)
            return  # a restarted child did not observe the beginning of training
        signals, self._signals = self._signals, {}
        yield from self._judge_depth({layer: signal for layer, signal in signals.items() if signal > 0})
        new = [value for value in values.all("weight").values() if value.is_matrix and value.layer not in self._judged]
        self._judged |= {value.layer for value in new}
        alike = [value for value in new if value.summary.minimum == value.summary.maximum]
        zero = [value for value in alike if not value.summary.maximum]
        for value in alike:
            if value.summary.maximum or len(zero) * 2 > len(new):  # a few zero-initialized ones may be intended
                text = f"all of its {value.summary.count:,} weights begin as {value.summary.maximum:g}, and stay alike"
                yield value.key, Finding(text, "begin with random weights, as torch.nn's layers do")

    def _judge_depth(self, signals: dict[str, float]) -> Iterator[Verdict]:
        if len(signals) < self.settings["layers"]:
            return
        first, *_, last = signals.values()
        grows = last > first
        for layer, signal in signals.items():
            change = signal / first if grows else first / signal
            if max(last / first, first / last) < self.settings["factor"] or change < self.settings["factor"]:
                continue
            text = f"what inputs differ in has {'grown' if grows else 'shrunk'} from {first:.2g} to {signal:.2g} here, at the first step"  # noqa: E501
            advice = f"begin with {'smaller' if grows else 'larger'} weights (kaiming_normal_ for ReLU, xavier_normal_ for tanh), or normalise between layers"  # noqa: E501
            if not grows:
                advice += "; use ReLU or GELU instead of sigmoid or tanh"
            yield (layer, "output"), Finding(text, advice, {"first": first, "here": signal})
            return


def _signal(value: Observation, delivery: Delivery) -> float:
    """How much an output varies over the inputs of the batch."""
    array = array_of(delivery)
    if array.size < 2 or array.dtype.kind in "biu":
        return 0.0
    if array.ndim < 2 or array.shape[0] < 2 or delivery.stride > 1:
        return value.summary.std
    rows = real_numbers(array[:64].reshape(min(64, array.shape[0]), -1)[:, :4096])
    with np.errstate(all="ignore"):
        deviation = math.sqrt(float(rows.var(axis=0, dtype=np.float64).mean()))
    return deviation if math.isfinite(deviation) else 0.0
