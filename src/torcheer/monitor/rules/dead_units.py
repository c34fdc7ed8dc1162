"""Rules on activations: dead units, saturation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.monitor.array_statistics import LOOKED_AT, even_stride, plain
from torcheer.monitor.rules.rule import Board, Finding, Rule, Seen, Verdict, array_of
from torcheer.samples import Delivery


@dataclass
class _Awake:
    """Which units of a layer have fired since a step."""

    units: NDArray[Any]  # of bool
    since: int


class DeadRelu(Rule):
    """Units of a ReLU are zero for every input, over many looks: nothing reaches their weights any more."""

    name = "dead_relu"
    defaults = {"share": 0.6, "patience": 10}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._awake: dict[tuple[str, int], _Awake] = {}
        self._inputs: set[str] = set()  # layers that hand on what went into the model

    def wants(self, variable: str) -> bool:
        return variable == "output"

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if seen.layer not in board.rectified or seen.summary.count < 2:
            return
        if board.before is None:
            handed_on = not _is_continuous(array_of(sent))  # the first may be the input itself
        else:
            handed_on = board.before.layer in self._inputs and board.before.summary.count == seen.summary.count
        if handed_on:
            self._inputs.add(seen.layer)
        else:
            yield from self._judge(seen, sent, board.step)

    def _judge(self, seen: Seen, sent: Delivery, step: int) -> Iterator[Verdict]:
        zeros, share = seen.summary.zeros / seen.summary.count, self.settings["share"]
        if zeros < share:  # then fewer units than that are dead
            for axis in range(len(seen.shape)):
                self._awake.pop((seen.layer, axis), None)
            yield seen.key, None
        elif not array_of(sent).size:  # summed up elsewhere: units cannot be told apart
            what = f"{zeros:.0%} of its outputs are 0"
            yield seen.key, self._finding(zeros, what, None) if zeros >= 0.98 else None
        else:
            yield from self._judge_units(seen, sent, step)

    def _judge_units(self, seen: Seen, sent: Delivery, step: int) -> Iterator[Verdict]:
        found = [self._asleep(seen.layer, axis, fired, step) for axis, fired in _fired(array_of(sent), sent)]
        dead, units, since = max(found, key=lambda one: one[0] / one[1], default=(0, 1, step))
        if since == step or dead < self.settings["share"] * units:
            yield seen.key, None  # others have fallen asleep meanwhile: the patience begins anew
        if dead >= self.settings["share"] * units:
            what = f"{dead:,} of its {units:,} units are 0 for every input"
            yield seen.key, self._finding(dead / units, what, since)

    def _asleep(self, layer: str, axis: int, fired: NDArray[Any], step: int) -> tuple[int, int, int]:
        """How many units have not fired since a step, how many there are, and that step."""
        kept = self._awake.get((layer, axis))
        awake = _Awake(fired, step) if kept is None or kept.units.shape != fired.shape else kept
        awake.units = awake.units | fired
        if np.count_nonzero(~awake.units) < self.settings["share"] * fired.size:
            awake = _Awake(fired, step)  # most have fired meanwhile: begin again
        self._awake[layer, axis] = awake
        return int(np.count_nonzero(~awake.units)), fired.size, awake.since

    @staticmethod
    def _finding(share: float, what: str, since: int | None) -> Finding:
        advice = "lower the learning rate, look at the biases before it, or use a leaky ReLU or GELU"
        return Finding(what, advice, {"share": share}, since)


def _is_continuous(array: NDArray[Any]) -> bool:
    """Whether hardly any number comes twice: words that are counted and the grey of pixels come often."""
    some = array.reshape(-1)[: 1 << 16]
    some = some[some != 0][:2000]
    coarse = array.dtype.kind != "f" or array.dtype.itemsize < 4  # numbers come twice anyhow
    return some.size > 50 and (coarse or bool(np.unique(some).size >= 0.2 * some.size))


def _fired(array: NDArray[Any], sent: Delivery) -> Iterator[tuple[int, NDArray[Any]]]:
    """For each axis that units may lie on, which of them are not zero somewhere: channels come second, or last."""
    shape = sent.whole or array.shape
    if len(shape) < 2:
        yield 0, (array != 0).reshape(-1)
        return
    for axis in sorted({1, len(shape) - 1}):
        if shape[axis] < 2:
            continue
        if sent.stride == 1 and array.shape == shape:
            others = tuple(other for other in range(array.ndim) if other != axis)
            yield axis, (array != 0).any(axis=others)
        else:
            places = np.arange(array.size) * sent.stride // math.prod(shape[axis + 1 :]) % shape[axis]
            fired = np.bincount(places, array.reshape(-1) != 0, shape[axis]) > 0
            yield axis, fired[np.unique(places)]  # of the others nothing was sent


class Saturation(Rule):
    """Most outputs of a tanh or sigmoid inside the net lie at its bounds, where its slope is nearly zero."""

    name = "saturation"
    defaults = {"share": 0.7, "margin": 0.01, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._now: dict[str, tuple[float, float]] = {}  # of this step: share at the bounds, the lower bound

    def wants(self, variable: str) -> bool:
        return variable == "output"

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        low, array, before = _lower_bound(seen, board.before), array_of(sent), board.before
        if low is None or array.size < 2 or (low == 0 and _is_softmax(array, seen)):
            return iter(())
        handed_on = before is not None and before.summary == seen.summary
        if not handed_on or (before is not None and before.layer in self._now):
            flat = array.reshape(-1)
            looked = plain(flat[:: even_stride(flat.size, LOOKED_AT)])
            margin = self.settings["margin"]
            at_bounds = (looked > 1 - margin) | (looked < low + margin)
            self._now[seen.layer] = float(np.count_nonzero(at_bounds)) / looked.size, low
        return iter(())

    def end(self, board: Board) -> Iterator[Verdict]:
        now, self._now = self._now, {}
        for layer, (share, low) in now.items():
            outputs = board.all("output")
            if layer not in outputs or _is_last(outputs, layer):
                continue  # a sure answer is what training is for
            margin = self.settings["margin"]
            what = f"{share:.0%} of its outputs are within {margin:g} of its bounds {low:g} and 1"
            advice = "normalise or scale down what goes into it, begin with smaller weights, or lower the learning rate"
            ill = Finding(what, advice, {"share": share}) if share >= self.settings["share"] else None
            yield (layer, "output"), ill


def _lower_bound(seen: Seen, before: Seen | None) -> float | None:
    """-1 for what looks like a tanh, 0 for a sigmoid, None for neither."""
    found = seen.summary
    if not (found.minimum >= -1 and found.maximum <= 1 and found.zeros * 2 < found.count):
        return None
    if before is None or not (found.maximum > 0.9 or found.minimum < -0.9):
        return None  # the first may be the input, handed on
    return -1.0 if found.minimum < 0 else 0.0


def _is_softmax(array: NDArray[Any], seen: Seen) -> bool:
    """Whether numbers along the second or last axis add up to one: shares, not the output of a sigmoid."""
    if len(seen.shape) < 2 or array.dtype.kind not in "fV":
        return False
    if array.shape != seen.shape:  # a flat sample: shares of n are 1/n in the mean
        found = seen.summary
        near = 5 * found.std / math.sqrt(found.count) + 0.02 * found.mean
        return any(abs(found.mean - 1 / seen.shape[axis]) <= near for axis in (1, -1))
    some = plain(array[:4])
    return any(bool(np.allclose(some.sum(axis=axis), 1, atol=0.02)) for axis in (1, -1))


def _is_last(outputs: dict[str, Seen], layer: str) -> bool:
    """Whether nothing but the same numbers comes after it: containers hand on what their last layer gave."""
    layers = list(outputs)
    mine = outputs[layer].summary
    return all(outputs[later].summary == mine for later in layers[layers.index(layer) + 1 :])
