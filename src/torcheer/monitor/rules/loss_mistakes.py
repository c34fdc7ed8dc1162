"""Rules on what the loss does to the last layer: a factor that is not meant, an activation that it has in itself."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.monitor.array_statistics import plain
from torcheer.monitor.rules.loss_fits import Fit, fits_of
from torcheer.monitor.rules.metric_rules import is_training
from torcheer.monitor.rules.rule import Board, Finding, Rule, Seen, Verdict, array_of
from torcheer.samples import Delivery, Key

_MOST_NUMBERS = 1 << 18  # of an output that is remembered until its gradient comes
_OUTPUTS = 4  # of the last layers
_ACCUMULATED = 32  # passes by which a loss may be divided


class AtTheLoss:
    """The last layer's output with the gradient that it gets: the first gradient that comes in a step."""

    def __init__(self) -> None:
        self._step, self._done = -1, False
        self._outputs: dict[str, NDArray[Any]] = {}

    def fits(self, seen: Seen, sent: Delivery, step: int) -> list[Fit] | None:
        """Remember an output; with the first gradient, the losses that it may come from. None: it cannot be said."""
        if step != self._step:
            self._step, self._done = step, False
            self._outputs.clear()
        array = array_of(sent)
        if seen.variable == "output":
            self._outputs.pop(seen.layer, None)
            if sent.stride == 1 and 2 <= array.size <= _MOST_NUMBERS and array.dtype.kind in "fV":
                self._outputs[seen.layer] = array
            for name in list(self._outputs)[:-_OUTPUTS]:
                del self._outputs[name]
            return None
        first, self._done = not self._done, True
        output = self._outputs.get(seen.layer)
        if not first or output is None or sent.stride != 1 or array.shape != output.shape:
            return None
        earlier = [plain(one) for name, one in self._outputs.items() if name != seen.layer]
        return fits_of(plain(output), plain(array), earlier)


class LossScale(Rule):
    """The loss is multiplied by a factor that makes all gradients far too large or small, as they leave the loss."""

    name = "loss_scale"
    explains = (
        "exploding_gradient", "vanishing_gradient", "update_ratio", "unchanged", "all_zero", "dead_relu", "saturation",
        "loss_plateau", "nan_inf",
    )  # fmt: skip
    defaults = {"large": 8.0, "small": 1e-3, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._edge = AtTheLoss()
        self._now: tuple[Key, Finding | None] | None = None
        self._by_design = False  # a GradScaler has multiplied it, and divides the gradients again
        self._gradient: tuple[int, Key, float, int] | None = None  # step, key, squared norm, numbers
        self._squares: deque[tuple[float, float]] = deque(maxlen=2)  # loss, and the factor if it is one of squares

    def wants(self, variable: str) -> bool:
        return variable in ("output", "grad", "update", "metric")

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if seen.variable == "metric":
            yield from self._by_squares(seen, board.step)
        elif seen.variable == "update":
            self._by_design = self._by_design or sent.scaled
        elif (fits := self._edge.fits(seen, sent, board.step)) is not None:
            if fits:
                self._now = seen.key, self._judge(fits[0])
            else:
                self._gradient = board.step, seen.key, seen.summary.norm**2, seen.summary.count

    def end(self, board: Board) -> Iterator[Verdict]:
        now, self._now = self._now, None
        if now is not None:
            yield now[0], None if self._by_design else now[1]

    def _judge(self, fit: Fit) -> Finding | None:
        mean = fit.scale * fit.rows  # the factor of a mean, where `scale` is that of a sum
        usual = fit.scale <= self.settings["large"] and mean >= self.settings["small"]
        if usual or not fit.even or _is_a_scalers(mean):  # rewards differ from row to row, and are meant
            return None
        return _finding(mean, f"a mean {fit.name} gives")

    def _by_squares(self, seen: Seen, step: int) -> Iterator[Verdict]:
        """Of a mean of squares, the squared norm of the gradient is a fixed multiple of the loss, whatever that is."""
        loss, gradient = seen.summary.mean, self._gradient
        if gradient is None or gradient[0] != step or not is_training(seen, "loss") or not 0 < loss < math.inf:
            return
        self._gradient = None
        _, key, squared, numbers = gradient
        self._squares.append((loss, squared * numbers / (4 * loss)))
        losses, factors = zip(*self._squares)
        if len(factors) < 2 or max(factors) > 1.001 * min(factors) or max(losses) < 1.02 * min(losses):
            return  # another loss, or none can say
        large, small = self.settings["large"] * numbers, 0.2 * self.settings["small"]
        fine = small <= factors[-1] <= large or _is_a_scalers(math.sqrt(factors[-1])) or self._by_design
        yield key, None if fine else _finding(factors[-1], "a mean of squares gives for the loss that was logged")


def _finding(factor: float, usual: str) -> Finding:
    size = "large" if factor > 1 else "small"
    what = f"the loss is scaled: the gradient that it gives is {factor:.3g} times what {usual}"
    advice = f"take the factor out of the loss; it makes every gradient too {size}, whatever the layers do"
    return Finding(what, advice, {"factor": factor})


def _is_a_scalers(factor: float) -> bool:
    """Whether a factor is a power of two, as a GradScaler's are; also of a loss divided by accumulated passes."""
    if not factor > 1:
        return False
    parts = np.log2(factor * np.arange(1, _ACCUMULATED + 1))
    return bool(np.any(np.abs(parts - np.round(parts)) < 4e-4))


class ActivationTwice(Rule):
    """The loss applies softmax or sigmoid itself, and gets what has already been through one."""

    name = "activation_twice"
    explains = ("loss_plateau", "vanishing_gradient", "update_ratio", "saturation", "unchanged")
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

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._edge = AtTheLoss()

    def wants(self, variable: str) -> bool:
        return variable in ("output", "grad")

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        fits = self._edge.fits(seen, sent, board.step)
        if not fits:
            return
        if not fits[0].twice:
            yield seen.key, None
            return
        what, advice = self._words[fits[0].twice]
        yield seen.key, Finding(f"what the loss gets has been through {what}: hardly a gradient is left", advice)
