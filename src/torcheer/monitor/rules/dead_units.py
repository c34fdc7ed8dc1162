"""Rules on activations: dead units, saturation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict, array_of
from torcheer.samples import Delivery
from torcheer.vocabulary.array_statistics import SUBSAMPLE_SIZE, even_stride


@dataclass
class _FiredUnits:
    """The units of a layer that have fired since a step."""

    units: NDArray[Any]  # of bool
    since: int


class DeadRelu(Rule):
    """Units of a ReLU are zero for every input, over many looks: nothing reaches their weights any more."""

    name = "dead_relu"
    defaults = {"share": 0.6, "patience": 10}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._fired_units: dict[tuple[str, int], _FiredUnits] = {}
        self._inputs: set[str] = set()  # layers that pass on the model's input

    def wants(self, variable: str) -> bool:
        return variable == "output"

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if value.layer not in values.rectified or value.summary.count < 2:
            return
        if values.before is None:
            is_input = not _is_continuous(array_of(delivery))  # the first output may be the input itself
        else:
            is_input = values.before.layer in self._inputs and values.before.summary.count == value.summary.count
        if is_input:
            self._inputs.add(value.layer)
        else:
            yield from self._judge(value, delivery, values.step)

    def _judge(self, value: Observation, delivery: Delivery, step: int) -> Iterator[Verdict]:
        zeros, share = value.summary.zeros / value.summary.count, self.settings["share"]
        if zeros < share:  # then fewer units than `share` are dead
            for axis in range(len(value.shape)):
                self._fired_units.pop((value.layer, axis), None)
            yield value.key, None
        elif not array_of(delivery).size:  # only statistics were sent: units cannot be told apart
            text = f"{zeros:.0%} of its outputs are 0"
            yield value.key, self._finding(zeros, text, None) if zeros >= 0.98 else None
        else:
            yield from self._judge_units(value, delivery, step)

    def _judge_units(self, value: Observation, delivery: Delivery, step: int) -> Iterator[Verdict]:
        counts = [
            self._count_dead(value.layer, axis, fired, step) for axis, fired in _fired(array_of(delivery), delivery)
        ]
        dead, units, since = max(counts, key=lambda count: count[0] / count[1], default=(0, 1, step))
        if since == step or dead < self.settings["share"] * units:
            yield value.key, None  # other units are dead now: restart the patience
        if dead >= self.settings["share"] * units:
            text = f"{dead:,} of its {units:,} units are 0 for every input"
            yield value.key, self._finding(dead / units, text, since)

    def _count_dead(self, layer: str, axis: int, fired: NDArray[Any], step: int) -> tuple[int, int, int]:
        """Count the units that have not fired since a step; returns that count, all units, and that step."""
        previous = self._fired_units.get((layer, axis))
        current = _FiredUnits(fired, step) if previous is None or previous.units.shape != fired.shape else previous
        current.units = current.units | fired
        if np.count_nonzero(~current.units) < self.settings["share"] * fired.size:
            current = _FiredUnits(fired, step)  # most have fired meanwhile: start over
        self._fired_units[layer, axis] = current
        return int(np.count_nonzero(~current.units)), fired.size, current.since

    @staticmethod
    def _finding(share: float, text: str, since: int | None) -> Finding:
        advice = "look at the biases before it, or use a leaky ReLU or GELU"
        if since != 0:  # then training has killed them
            advice = f"lower the learning rate, {advice}"
        return Finding(text, advice, {"share": share}, since)


def _is_continuous(array: NDArray[Any]) -> bool:
    """Whether hardly any number repeats: word counts and grey levels of pixels repeat often."""
    numbers = array.reshape(-1)[: 1 << 16]
    numbers = numbers[numbers != 0][:2000]
    is_coarse = array.dtype.kind != "f" or array.dtype.itemsize < 4  # such types repeat in any case
    return numbers.size > 50 and (is_coarse or bool(np.unique(numbers).size >= 0.2 * numbers.size))


def _fired(array: NDArray[Any], delivery: Delivery) -> Iterator[tuple[int, NDArray[Any]]]:
    """For each axis that may hold units (the second or the last), which units are not zero everywhere."""
    shape = delivery.whole or array.shape
    if len(shape) < 2:
        yield 0, (array != 0).reshape(-1)
        return
    for axis in sorted({1, len(shape) - 1}):
        if shape[axis] < 2:
            continue
        if delivery.stride == 1 and array.shape == shape:
            reduced_axes = tuple(dimension for dimension in range(array.ndim) if dimension != axis)
            yield axis, (array != 0).any(axis=reduced_axes)
        else:
            units = np.arange(array.size) * delivery.stride // math.prod(shape[axis + 1 :]) % shape[axis]
            fired = np.bincount(units, array.reshape(-1) != 0, shape[axis]) > 0
            yield axis, fired[np.unique(units)]  # the subsample has nothing of the others


class Saturation(Rule):
    """Most outputs of a tanh or sigmoid inside the net lie at its bounds, where its slope is nearly zero."""

    name = "saturation"
    defaults = {"share": 0.7, "margin": 0.01, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._shares: dict[str, tuple[float, float]] = {}  # of this step: share at the bounds, the lower bound

    def wants(self, variable: str) -> bool:
        return variable == "output"

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        low, array, before = lower_bound(value, values.before), array_of(delivery), values.before
        if low is None or array.size < 2 or (low == 0 and _is_softmax(array, value)):
            return iter(())
        is_passed_on = before is not None and before.summary == value.summary
        if not is_passed_on or (before is not None and before.layer in self._shares):
            flat = array.reshape(-1)
            numbers = real_numbers(flat[:: even_stride(flat.size, SUBSAMPLE_SIZE)])
            margin = self.settings["margin"]
            at_bounds = (numbers > 1 - margin) | (numbers < low + margin)
            self._shares[value.layer] = float(np.count_nonzero(at_bounds)) / numbers.size, low
        return iter(())

    def end(self, values: StepValues) -> Iterator[Verdict]:
        shares, self._shares = self._shares, {}
        for layer, (share, low) in shares.items():
            outputs = values.all("output")
            if layer not in outputs or _is_last(outputs, layer):
                continue  # confident answers of the last layer are the aim of training
            margin = self.settings["margin"]
            text = f"{share:.0%} of its outputs are within {margin:g} of its bounds {low:g} and 1"
            advice = "normalise or scale down what goes into it, begin with smaller weights, or lower the learning rate"
            finding = Finding(text, advice, {"share": share}) if share >= self.settings["share"] else None
            yield (layer, "output"), finding


def lower_bound(value: Observation, before: Observation | None) -> float | None:
    """-1 for what resembles a tanh, 0 for a sigmoid, None for neither."""
    statistics = value.summary
    if not (statistics.minimum >= -1 and statistics.maximum <= 1 and statistics.zeros * 2 < statistics.count):
        return None
    if before is None or not (statistics.maximum > 0.9 or statistics.minimum < -0.9):
        return None  # the first output may be the input, passed on
    return -1.0 if statistics.minimum < 0 else 0.0


def _is_softmax(array: NDArray[Any], value: Observation) -> bool:
    """Whether numbers along the second or last axis sum to one: a softmax, not a sigmoid."""
    if len(value.shape) < 2 or array.dtype.kind not in "fV":
        return False
    if array.shape != value.shape:  # a flat subsample: a softmax over n classes has mean 1/n
        statistics = value.summary
        tolerance = 5 * statistics.std / math.sqrt(statistics.count) + 0.02 * statistics.mean
        return any(abs(statistics.mean - 1 / value.shape[axis]) <= tolerance for axis in (1, -1))
    rows = real_numbers(array[:4])
    return any(bool(np.allclose(rows.sum(axis=axis), 1, atol=0.02)) for axis in (1, -1))


def _is_last(outputs: dict[str, Observation], layer: str) -> bool:
    """Whether only the same numbers come after it: containers pass on the output of their last layer."""
    layers = list(outputs)
    statistics = outputs[layer].summary
    return all(outputs[later].summary == statistics for later in layers[layers.index(layer) + 1 :])
