"""How far two values may lie apart by rounding alone, and which therefore agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf, sqrt

import numpy as np

from torcheer.history.alignment.pairing import Pair, Pairs
from torcheer.history.alignment.value_samples import HistoryValues, numel
from torcheer.vocabulary.dtypes import DTYPES

UNITS = {name: row.rounding_unit for name, row in DTYPES.items() if row.kind in ("float", "complex")}
TF32 = 2**-11  # what convolutions on a GPU compute in, unless told otherwise
CUDNN_GATES = 2**-17  # of cuDNN's recurrent kernels, which approximate sigmoid and tanh (seen: 6.6e-6 in float32)
RECURRENT = frozenset("lstm gru rnn_tanh".split())
SHARE = 0.2  # a type that less of the operations return is a detour, not the precision of the run
MARGIN = 2.5  # times the expected error that still counts as rounding
MOST_STEPS = 8  # operations between two pairs whose rounding adds up
MOST_SOURCES = 24
RUNS = 512  # neighbouring numbers from which a slope is taken
ODD_CHOICES = 0.02  # share of integers (an argmax) that may flip by rounding
SUMS = frozenset("sum mean var std norm logsumexp cross_entropy mse_loss nll_loss".split())
DILUTED = 0.05  # an error that shrinks to less than this is gone, not diluted


@dataclass(slots=True)
class Verdicts:
    """For each slot: whether it agrees with its counterpart, and the error that rounding explains."""

    good: list[bool]
    expected: list[float]
    sources: list[tuple[int, ...]] = field(default_factory=list)  # nearest values upstream that agree


def rounding_unit(*histories: HistoryValues) -> float:
    """Return the coarsest rounding that is a run's own precision."""
    return max(_unit_of(values) for values in histories)


def _unit_of(values: HistoryValues) -> float:
    names = Counter(slot.dtype.removeprefix("torch.") for slot in values.slots)
    counts = {name: count for name, count in names.items() if name in UNITS}
    total = sum(counts.values())
    units = [UNITS[name] for name, count in counts.items() if count >= SHARE * total]
    on_gpu = any("conv" in op.name and any("cuda" in meta.device for meta in op.outputs) for op in values.ops)
    return max([*units, *([TF32] if on_gpu else [])], default=UNITS["float32"])


def judge(values: HistoryValues, others: HistoryValues, pairs: Pairs, unit: float) -> Verdicts:
    """Decide in order of execution which values agree, given how well the nearest ones upstream do."""
    count = len(values.slots)
    verdicts = Verdicts([False] * count, [inf] * count, [()] * count)
    steps = [0] * count
    for index, slot in enumerate(values.slots):
        before = [(parent, verdicts.good[parent]) for parent in slot.parents]
        near: dict[int, None] = {}
        for parent, good in before:
            near.update(dict.fromkeys([parent] if good else verdicts.sources[parent]))
        steps[index] = 1 + max((steps[parent] for parent, good in before if not good), default=0)
        verdicts.sources[index] = tuple(near)[:MOST_SOURCES]
        pair = pairs.get(index)
        own = max(unit, _kernel_unit(values, others, index, pair))
        verdicts.expected[index] = _expected(values, index, pairs, verdicts.sources[index], steps[index], own)
        if pair is not None and pair.firm:
            verdicts.good[index] = _agrees(values, others, index, pair, verdicts)
    return verdicts


def _kernel_unit(values: HistoryValues, others: HistoryValues, index: int, pair: Pair | None) -> float:
    """Return the rounding of a kernel that is coarser than its type."""
    ops = [values.op_of(index), *([others.op_of(pair.partner)] if pair is not None else [])]
    on_gpu = any(op.name in RECURRENT and any("cuda" in meta.device for meta in op.outputs) for op in ops)
    return CUDNN_GATES if on_gpu else 0.0


def _agrees(values: HistoryValues, others: HistoryValues, index: int, pair: Pair, verdicts: Verdicts) -> bool:
    slot, partner = values.slots[index], others.slots[pair.partner]
    if not (slot.known and partner.known):
        return False
    if pair.error <= MARGIN * verdicts.expected[index]:
        return True
    if numel(slot.shape) != numel(partner.shape):
        return False
    array, other = values.array(index), others.array(pair.partner)
    if array.dtype.kind == "f" or other.dtype.kind == "f" or not verdicts.sources[index]:
        return False
    exact = all(values.array(source).dtype.kind != "f" for source in verdicts.sources[index])
    return not exact and float(np.mean(array.reshape(-1) != other.reshape(-1))) <= ODD_CHOICES


def _expected(
    values: HistoryValues, index: int, pairs: Pairs, sources: tuple[int, ...], steps: int, unit: float
) -> float:
    """Estimate the relative error of a value: what its sources bring, amplified, and its own rounding."""
    if not values.slots[index].known:
        return inf
    amplified = [(_amplification(values, source, index), pairs[source].error) for source in sources]
    brought = max((factor * error for factor, error in amplified), default=0.0)
    own = unit * (1 + max((factor for factor, _ in amplified), default=0.0)) * sqrt(min(steps, MOST_STEPS))
    return own + brought


def _amplification(values: HistoryValues, source: int, index: int) -> float:
    """Return by how much a relative error of `source` grows: more than 1 where large numbers cancel."""
    x, y = values.slots[source], values.slots[index]
    if not x.rms or not y.rms or not x.telling:
        return 1.0
    if values.op_of(index).name in SUMS or numel(y.shape) == 1:
        return max(1.0, x.rms / y.rms)
    if numel(x.shape) == numel(y.shape):
        return float(np.clip(_slope(values, source, index) * x.rms / y.rms, 1.0, 1e6))
    return float(np.clip(x.rms / x.spread, 1.0, 1e6)) if x.spread else 1.0


def _slope(values: HistoryValues, source: int, index: int) -> float:
    """Return how fast the one changes with the other, from neighbouring numbers: an estimate of the derivative."""
    x, y = values.array(source).reshape(-1), values.array(index).reshape(-1)
    starts = np.linspace(0, x.size - 2, min(RUNS, x.size - 1)).astype(np.int64)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        dx = np.abs(x[starts + 1].astype(np.float64) - x[starts])
        dy = np.abs(y[starts + 1].astype(np.float64) - y[starts])
    usable = (dx > 1e-3 * values.slots[source].spread) & np.isfinite(dx) & np.isfinite(dy)
    return float(np.quantile(dy[usable] / dx[usable], 0.75)) if usable.any() else 1.0


def explained(values: HistoryValues, pairs: Pairs, verdicts: Verdicts) -> list[bool]:
    """Which values are fine although they do not agree: what is made of them agrees again.

    A sum hides the error of a small term; so the error downstream is taken relative to the value itself.
    """
    count = len(values.slots)
    relative, absolute, fine = [inf] * count, [inf] * count, [False] * count
    for index in reversed(range(count)):
        slot = values.slots[index]
        for child in _speaking(values, index, verdicts.good, fine):
            if verdicts.good[child]:
                if values.slots[child].telling:
                    relative[index] = min(relative[index], pairs[child].error)
                    absolute[index] = min(absolute[index], pairs[child].error * values.slots[child].rms)
            elif fine[child]:
                relative[index] = min(relative[index], relative[child])
                absolute[index] = min(absolute[index], absolute[child])
        error = min(pairs[index].error, 1.0) if index in pairs and pairs[index].firm else 1.0
        left = max(relative[index], absolute[index] / slot.rms if slot.rms else relative[index])
        fine[index] = left < DILUTED * error or (index not in pairs and relative[index] < inf and not slot.telling)
    return fine


def _speaking(values: HistoryValues, index: int, good: list[bool], fine: list[bool]) -> list[int]:
    """Return the readers that say something of a whole value: not those of parts of it, if another part is wrong."""
    children = values.children[index]
    size = numel(values.slots[index].shape)
    parts = {child for child in children if values.op_of(child).view and numel(values.slots[child].shape) < size}
    wrong = any(not good[child] and not fine[child] and values.slots[child].known for child in parts)
    return [child for child in children if child not in parts] if wrong else children
