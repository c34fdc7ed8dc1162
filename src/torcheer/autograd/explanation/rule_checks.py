"""Numeric checks of a backward pass: what each rule sent, beside central differences of its operation.

A rule is checked by itself: the number of which it computes the gradient is the sum of its operation's result times the
gradient that arrived. A leaf is checked as a whole: the forward pass is repeated with one of its numbers changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.explanation.recorded_calls import MOVED, RecordedCall, Replay, in_double
from torcheer.autograd.tape.nodes import FLOATS

MOST_ELEMENTS = 6  # that are checked of one gradient
MOST_CALLS = 9_000  # of functions, for all rules together; as many again for the leaves
MOST_NUMBERS = 100_000_000  # that these compute
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_KINK = 1e-3  # slopes to the left and to the right that are further apart have no common tangent
_WIDTH = 1e-6
_COARSE_WIDTH, _COARSE_TOLERANCE = 2.0**-7, 2e-2  # for results that are rounded to single precision or less
_LONG = "the pass is long, so only a part of it is checked"


@dataclass(frozen=True, slots=True)
class CheckedNumber:
    """One number of a gradient: by the rule, and by differences."""

    index: tuple[int, ...]
    by_rule: float
    by_differences: float
    is_kink: bool  # the slopes on both sides differ: any number between them is right

    @property
    def error(self) -> float:
        """How far they are apart."""
        return abs(self.by_rule - self.by_differences)


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """The check of one gradient."""

    numbers: tuple[CheckedNumber, ...] = ()
    worst: float = 0.0  # the largest distance, over 1 + the size of the gradient
    passed: bool = False
    note: str = ""  # why it was not checked, half a sentence; "" if it was


@dataclass(slots=True)
class Budget:
    """What checks may still cost: counted, not timed, so that a pass is checked the same way everywhere."""

    gradients: int  # that are still to be checked
    calls: int = MOST_CALLS
    numbers: int = MOST_NUMBERS

    def elements(self, calls: int, numbers: int) -> int:
        """Return how many elements of the next gradient can be checked, if each takes so many calls and numbers."""
        share = min(self.calls // max(1, calls), self.numbers // max(1, numbers)) // max(1, self.gradients)
        count = min(MOST_ELEMENTS, share)
        self.gradients -= 1
        self.calls -= count * calls
        self.numbers -= count * numbers
        return count


def check_rule(
    call: RecordedCall, edge: Any, values: list[Any], own: int, arrived: Tensor, sent: Tensor, budget: Budget
) -> RuleCheck:
    """Check what the rule of op `own` sent along an edge."""
    count = budget.elements(3, 3 * arrived.numel())
    if call.function is None:
        return RuleCheck(note="the operation cannot be run again by itself")
    if count == 0:
        return RuleCheck(note=_LONG)
    doubles = {index: in_double(values[index]) for index in call.reads()}
    start, weights, moving = doubles[edge.parent], in_double(arrived), call.moving(edge.where)
    repeated = call.repeat(doubles)
    if not _is_same(repeated, values[own]):
        return RuleCheck(note="run again, the operation gives other numbers")

    def weighted(value: Tensor) -> float:
        return _weighted_sum(moving.repeat({**doubles, MOVED: value}), weights)

    return _check(weighted, start, sent, count, repeated.dtype)


def check_leaf(replay: Replay, leaf: int, gradient: Tensor, first: Tensor, budget: Budget) -> RuleCheck:
    """Check the whole gradient of a leaf; `first` is the gradient that backward began with."""
    count = budget.elements(3 * (len(replay.calls) - leaf), 3 * replay.numbers_after(leaf))
    if count == 0:
        return RuleCheck(note=_LONG)
    depending = replay.depending_on(leaf)
    weights, last = in_double(first), replay.values[-1]

    def weighted(value: Tensor) -> float:
        return _weighted_sum(replay.last_result(leaf, value, depending), weights)

    return _check(weighted, replay.values[leaf], gradient, count, last.dtype)


def _check(
    weighted: Callable[[Tensor], float], start: Tensor, gradient: Tensor, count: int, kind: torch.dtype
) -> RuleCheck:
    """Compare a gradient with central differences at some elements; `kind` is the dtype of the result."""
    width = _WIDTH if kind is torch.float64 else _COARSE_WIDTH
    tolerance = max(_TOLERANCE.get(gradient.dtype, 0.0), 0.0 if kind is torch.float64 else _COARSE_TOLERANCE)
    flat, centre = in_double(gradient).reshape(-1), weighted(start)
    numbers, places = [], [place for place in chosen_places(flat, count) if start.reshape(-1)[place].isfinite()]
    if flat.numel() and not places:
        return RuleCheck(note="its numbers are not finite")
    for place in places:
        step = width * max(1.0, abs(float(start.reshape(-1)[place])))
        above, below = (weighted(_moved(start, place, way * step)) for way in (1, -1))
        left, right = (centre - below) / step, (above - centre) / step
        is_kink = abs(left - right) > _KINK * (1 + abs(left) + abs(right))
        by_differences = (above - below) / (2 * step)
        numbers.append(CheckedNumber(_position(place, start.shape), float(flat[place]), by_differences, is_kink))
    worst = max((_distance(number) for number in numbers if not number.is_kink), default=0.0)
    return RuleCheck(tuple(numbers), worst, worst <= tolerance)


def chosen_places(flat: Tensor, count: int) -> list[int]:
    """Return the elements to check: all of a few; else the largest, and others evenly spread."""
    total = flat.numel()
    if total <= count:
        return list(range(total))
    largest = int(flat.abs().nan_to_num(torch.inf).argmax())
    spread = [number * (total - 1) // max(1, count - 2) for number in range(count - 1)]
    return sorted({largest, *spread})


def _weighted_sum(result: Tensor, weights: Tensor) -> float:
    """Return the sum of a result times the gradient that arrived; where none did, an infinity does not count."""
    return float(torch.where(weights == 0, 0.0, in_double(result) * weights).sum())


def _position(place: int, shape: torch.Size) -> tuple[int, ...]:
    position: list[int] = []
    for length in reversed(shape):
        place, rest = divmod(place, length)
        position.insert(0, rest)
    return tuple(position)


def _moved(start: Tensor, place: int, by: float) -> Tensor:
    moved = start.clone(memory_format=torch.contiguous_format)
    moved.view(-1)[place] += by
    return moved


def _distance(number: CheckedNumber) -> float:
    distance = number.error / (1 + abs(number.by_differences))
    return distance if distance == distance else float("inf")


def _is_same(repeated: Any, recorded: Any) -> bool:
    """True if a repeated result is the recorded one, but for rounding."""
    if not isinstance(repeated, Tensor) or repeated.dtype not in FLOATS:
        return False
    if recorded is None:
        return True
    expected = in_double(recorded)
    finite = expected[expected.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return expected.shape == repeated.shape and torch.allclose(
        in_double(repeated), expected, rtol=1e-2, atol=1e-2 * scale + 1e-6, equal_nan=True
    )
