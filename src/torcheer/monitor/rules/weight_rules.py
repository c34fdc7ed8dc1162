"""Rules on weights: how they begin, and how they change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from torcheer.monitor.array_statistics import plain
from torcheer.monitor.rules.rule import Board, Finding, Rule, Seen, Verdict, array_of
from torcheer.samples import Delivery, Statistics

_GETS = "give it to the optimizer, with a learning rate that its gradient is large enough for"
_GETS_NONE = "see that a gradient reaches it and the optimizer has it; if it is frozen on purpose, all is well"


class Unchanged(Rule):
    """A weight matrix that may change stays as it is while others change, or nothing changes at all."""

    name = "unchanged"
    defaults = {"patience": 10, "all_patience": 100}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._was: dict[str, tuple[tuple[float, ...], int]] = {}  # what a weight looks like, and since which step
        self._idle = 0  # steps in which none changed

    def end(self, board: Board) -> Iterator[Verdict]:
        seen_now = board.all("weight").items()
        weights = {layer: seen for layer, seen in seen_now if seen.is_matrix and not seen.frozen}
        known = [layer for layer in weights if layer in self._was]
        same = [layer for layer in known if self._was[layer][0] == _looks(weights[layer].summary)]
        for layer, seen in weights.items():
            if layer not in same:
                self._was[layer] = _looks(seen.summary), board.step
        if known:
            yield from self._all_idle(same) if len(same) == len(known) else self._some_idle(known, same, board)

    def _some_idle(self, known: list[str], same: list[str], board: Board) -> Iterator[Verdict]:
        self._idle = 0
        gradients = board.all("weight_grad")
        for layer in known:
            if layer not in same:
                yield (layer, "weight"), None
            else:
                gets = layer in gradients and gradients[layer].summary.norm > 0
                what = f"it does not change, while {len(known) - len(same):,} of {len(known):,} weights do"
                what += ", though it gets a gradient" if gets else ""
                yield (layer, "weight"), Finding(what, _GETS if gets else _GETS_NONE, since=self._was[layer][1])

    def _all_idle(self, same: list[str]) -> Iterator[Verdict]:
        """Gradient accumulation has such steps, but not so many of them."""
        self._idle += 1
        first = same[0]
        if self._idle >= self.settings["all_patience"]:
            what = f"none of the {len(same):,} watched weights changes"
            advice = "call optimizer.step(), with these parameters and a learning rate above 0"
            yield (first, "weight"), Finding(what, advice, since=self._was[first][1])


def _looks(found: Statistics) -> tuple[float, ...]:
    return tuple(
        0.0 if math.isnan(number) else number
        for number in (found.minimum, found.maximum, found.mean, found.std, found.norm, found.nans)
    )


class UpdateRatio(Rule):
    """An optimizer's step changes a weight matrix by too much of its norm, or by less than float32 can hold."""

    name = "update_ratio"
    defaults = {"low": 1e-7, "high": 0.1, "after": 10, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._looks: Counter[str] = Counter()
        self._norms: dict[str, float] = {}  # of the weights; where gradients are accumulated, the update comes later

    def wants(self, variable: str) -> bool:
        return variable in ("weight", "update")

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if seen.variable == "weight":
            self._norms[seen.layer] = seen.summary.norm
            return
        norm = self._norms.get(seen.layer, 0.0)
        if not seen.is_matrix or not norm > 0 or not seen.summary.norm > 0:
            return  # `unchanged` tells of steps that are zero
        self._looks[seen.layer] += 1
        if self._looks[seen.layer] > self.settings["after"]:
            yield seen.key, self._judge(seen.summary.norm / norm)

    def _judge(self, ratio: float) -> Finding | None:
        low, high = self.settings["low"], self.settings["high"]
        if low <= ratio <= high:
            return None
        if ratio > high:
            what, advice = (
                f"a step changes it by {ratio:.3g} of its norm, more than {high:g}",
                "lower the learning rate",
            )
        else:
            what = f"a step changes it by {ratio:.2g} of its norm, less than {low:g}"
            advice = "raise the learning rate, or see why its gradient is so small"
        return Finding(what, advice, {"ratio": ratio}, order=-abs(math.log(ratio)))


class PoorInitialisation(Rule):
    """Weights begin all alike, or what the inputs differ in grows or shrinks through the layers by powers of ten."""

    name = "poor_initialisation"
    defaults = {"factor": 1e6, "layers": 5, "until": 10, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._first_step: int | None = None
        self._signals: dict[str, float] = {}  # by layer, in order
        self._known: set[str] = set()  # weights that were looked at

    def wants(self, variable: str) -> bool:
        return variable == "output"

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if self._first_step in (None, board.step) and board.step <= self.settings["until"]:
            self._first_step = board.step
            self._signals[seen.layer] = _signal(seen, sent)
        return iter(())

    def end(self, board: Board) -> Iterator[Verdict]:
        if board.step > self.settings["until"]:
            return  # a child that began late does not see how training began
        signals, self._signals = self._signals, {}
        yield from self._through_depth({layer: signal for layer, signal in signals.items() if signal > 0})
        new = [seen for seen in board.all("weight").values() if seen.is_matrix and seen.layer not in self._known]
        self._known |= {seen.layer for seen in new}
        alike = [seen for seen in new if seen.summary.minimum == seen.summary.maximum]
        zero = [seen for seen in alike if not seen.summary.maximum]
        for seen in alike:
            if seen.summary.maximum or len(zero) * 2 > len(new):  # a few that begin at zero may be meant
                what = f"all of its {seen.summary.count:,} weights begin as {seen.summary.maximum:g}, and stay alike"
                yield seen.key, Finding(what, "begin with random weights, as torch.nn's layers do")

    def _through_depth(self, signals: dict[str, float]) -> Iterator[Verdict]:
        if len(signals) < self.settings["layers"]:
            return
        first, *_, last = signals.values()
        grows = last > first
        for layer, signal in signals.items():
            change = signal / first if grows else first / signal
            if max(last / first, first / last) < self.settings["factor"] or change < self.settings["factor"]:
                continue
            what = f"what inputs differ in has {'grown' if grows else 'shrunk'} from {first:.2g} to {signal:.2g} here, at the first step"  # noqa: E501
            advice = f"begin with {'smaller' if grows else 'larger'} weights (kaiming_normal_ for ReLU, xavier_normal_ for tanh), or normalise between layers"  # noqa: E501
            yield (layer, "output"), Finding(what, advice, {"first": first, "here": signal})
            return


def _signal(seen: Seen, sent: Delivery) -> float:
    """By how much an output differs from one input of the batch to another."""
    array = array_of(sent)
    if array.size < 2 or array.dtype.kind in "biu":
        return 0.0
    if array.ndim < 2 or array.shape[0] < 2 or sent.stride > 1:
        return seen.summary.std
    few = plain(array[:64].reshape(min(64, array.shape[0]), -1)[:, :4096])
    with np.errstate(all="ignore"):
        found = math.sqrt(float(few.var(axis=0, dtype=np.float64).mean()))
    return found if math.isfinite(found) else 0.0
