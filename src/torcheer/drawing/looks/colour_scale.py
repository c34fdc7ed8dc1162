"""Colour boxes by a number instead of by kind: the quantities that a pass has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf, isfinite, isinf, isnan, log10, nan
from typing import Any

from torcheer.drawing.items.item import Item
from torcheer.drawing.layout.picture import BoxView
from torcheer.drawing.looks.colours import STRANGE, ink_on, ramp
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.terminal import human_bytes, human_count, human_secs
from torcheer.vocabulary.quantities import OF_A_PASS, QUANTITIES

WAYS = ("kind", *OF_A_PASS)
_FORMATS: dict[str, Callable[[float], str]] = {
    "seconds": human_secs,
    "bytes": lambda value: human_bytes(round(value)),
    "count": lambda value: human_count(round(value)),
    "": lambda value: f"{value:.2g}",
}


class Colouring:
    """A colour for every box, from the sum of the values in it, or from their mean."""

    def __init__(self, way: str, values: list[float | None], name: str) -> None:
        self.way, self.values, self.name = way, values, name
        self.sums = [0.0]
        self.counts = [0]
        self.nans, self.infs = [0], [0]  # counted separately: added up, one would spoil all later sums
        for value in values:
            finite = value if value is not None and isfinite(value) else 0.0
            self.sums.append(self.sums[-1] + finite)
            self.counts.append(self.counts[-1] + (value is not None))
            self.nans.append(self.nans[-1] + (value is not None and isnan(value)))
            self.infs.append(self.infs[-1] + (value is not None and isinf(value)))
        self.range = (0.0, 1.0)
        self.words = way
        self.is_strange = False  # True if the value of a visible box is NaN or infinite

    def value(self, view: BoxView, first: int) -> float | None:
        """Return the value of a box, None if no item in it has one."""
        end = first + (view.plan.size if view.plan else 1)
        count = self.counts[end] - self.counts[first]
        if not count:
            return None
        if self.nans[end] > self.nans[first]:
            return nan
        if self.infs[end] > self.infs[first]:
            return inf
        total = self.sums[end] - self.sums[first]
        return total / count if QUANTITIES[self.way].is_mean else total

    def fit(self, values: list[float]) -> None:
        """Fit the logarithmic scale, at most four decades, to the visible values."""
        self.is_strange = not all(map(isfinite, values))
        positive = sorted(value for value in values if 0 < value < inf)
        if positive:
            high = log10(positive[-1])
            low = max(log10(positive[0]), high - 4)
            self.range = (low, high if high > low else low + 1)
            low_text, high_text = [self._format(10**end) for end in self.range]
            self.words = f"{self.name}: {low_text} – {high_text}"

    def of(self, view: BoxView, first: int) -> tuple[str, str] | None:
        """Return the fill and text colour of a box, None if it keeps its own."""
        value = self.value(view, first)
        if value is None or view.face.look in ("input", "output", "parameter", "buffer", "stop"):
            return None
        if not isfinite(value):
            return STRANGE, ink_on(STRANGE)
        low, high = self.range
        return ramp((log10(value) - low) / (high - low) if value > 0 else 0.0)

    def describe(self, view: BoxView, first: int) -> str:
        """Return the value of a box as text, "" if it has none."""
        value = self.value(view, first)
        return "" if value is None else f"{self.name}: {self._format(value)}"

    def _format(self, value: float) -> str:
        if not isfinite(value):
            return "NaN" if isnan(value) else "∞"
        return _FORMATS[QUANTITIES[self.way].unit](value)


def colour_names(history: ModelHistory) -> dict[str, str]:
    """Return what the numbers of a pass are, for legends: times may be those of launches."""
    return {name: QUANTITIES[name].legend for name in OF_A_PASS} | {"time": history.facts.time_name()}


def make_colouring(history: ModelHistory, items: list[Item], way: str) -> Colouring | None:
    """Return the colouring by a number; None for colours by kind."""
    if way == "kind":
        return None
    values = values_of(history, items, way)
    if way == "gradient" and all(value is None for value in values):
        raise BadArgument(
            "colour_by='gradient': this history holds no gradients. Capture with save_gradients=True, then call "
            "history.backward(loss) before drawing."
        )
    return Colouring(way, values, colour_names(history)[way])


def values_of(history: ModelHistory, items: list[Item], way: str) -> list[float | None]:
    """Return a number for each item, None where there is none: what its operations have together."""
    amounts_of = _AMOUNTS[way](history)
    amounts = [[float(each) for index in item.ops for each in amounts_of(index)] for item in items]
    count = len if QUANTITIES[way].is_mean else lambda amounts: 1
    return [sum(own) / count(own) if own else None for own in amounts]


# -- what each operation has of each quantity --------------------------------------------------------------------------

AmountsOf = Callable[[int], Iterable[float]]  # of an operation; nothing where it is not known


def _times(history: ModelHistory) -> AmountsOf:
    return lambda index: [history.facts.ops[index].elapsed_secs]


def _result_bytes(history: ModelHistory) -> AmountsOf:
    return lambda index: [sum(meta.bytes for meta in history.facts.ops[index].outputs)]


def _flops(history: ModelHistory) -> AmountsOf:
    return lambda index: [] if (count := history.facts.flops[index]) is None else [count]


def _parameters(history: ModelHistory) -> AmountsOf:
    """Parameters that several operations share count for the first of them, so that sums are those of the model."""
    first = {
        stored.name: (op.index, stored.count)
        for op in reversed(history.facts.ops) for stored in op.stored if stored.kind == "parameter"
    }  # fmt: skip
    counts: dict[int, list[int]] = {}
    for index, count in first.values():
        counts.setdefault(index, []).append(count)
    return lambda index: counts.get(index, [])


def _gradients(history: ModelHistory) -> AmountsOf:
    return partial(_gradient_sizes, history)


def _gradient_sizes(history: ModelHistory, index: int) -> Iterator[float]:
    for output in range(len(history.facts.ops[index].outputs)):
        for gradient in history.trace.gradients(index, output)[-1:]:
            if gradient is not None:
                yield _mean_size(gradient)


def _mean_size(gradient: Any) -> float:
    size: Any = abs(gradient)
    size = size.float() if hasattr(size, "float") else size
    return float(size.mean())


_AMOUNTS: dict[str, Callable[[ModelHistory], AmountsOf]] = {
    "time": _times, "memory": _result_bytes, "flops": _flops, "parameters": _parameters, "gradient": _gradients,
}  # fmt: skip
