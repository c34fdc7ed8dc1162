"""The values of one history as slots: what each reads, a sample of its numbers, and its array when asked."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ValueUnavailable
from torcheer.history.numbers.unwritten_memory import Places, written_numbers
from torcheer.history.value_arrays import to_numpy
from torcheer.records import BESIDE, NO_STRUCTURE, Op

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

Array = NDArray[Any]
SAMPLE = 256  # numbers of a sample: two different values agree in all of them by chance only if they are constant
KEPT = 24  # arrays held at a time
HUGE = 6e4  # what a mask adds: -inf, -1e9 and the least number of a type mean the same
FEW = 8  # a value with fewer numbers may equal another by chance


@dataclass(slots=True)
class Slot:
    """One tensor that an operation made, with what is known of its numbers."""

    op: int
    output: int
    shape: tuple[int, ...]  # of the array, without axes of length 1
    dtype: str
    parents: tuple[int, ...]  # slots that its operation read
    known: bool = False  # whether its value was saved
    sample: Array | None = None
    rms: float = 0.0
    mean: float = 0.0
    spread: float = 0.0  # standard deviation
    telling: bool = False  # a float array that does not equal another by chance


class HistoryValues:
    """The slots of a history, in order of execution."""

    def __init__(self, history: ModelHistory, unwritten: Places) -> None:
        self.history = history
        self.unwritten = unwritten
        self.ops: list[Op] = history.ops
        self.slots: list[Slot] = []
        self.of: dict[tuple[int, int], int] = {}  # (op, output) -> slot
        self._arrays: OrderedDict[int, Array] = OrderedDict()
        for op in self.ops:
            parents = tuple(dict.fromkeys(self._parents(op)))
            for output, meta in enumerate(op.tensors):
                self.of[op.index, output] = len(self.slots)
                self.slots.append(Slot(op.index, output, _squeezed(meta.shape), meta.dtype, parents))
        self.children: list[list[int]] = [[] for _ in self.slots]
        for index, slot in enumerate(self.slots):
            for parent in slot.parents:
                self.children[parent].append(index)
            self._look(index, slot)

        self.twin = self._twins()
        self.has_structure = NO_STRUCTURE not in history.info.notes
        # True where what it does not hold may have been computed all the same
        self.is_partial = not self.has_structure or not all(self.slots[index].known for index in self.results())

    def _twins(self) -> list[int]:
        """Return for each slot the first that holds the same numbers, in any order."""
        seen: dict[tuple[object, ...], int] = {}
        twins = []
        for index, slot in enumerate(self.slots):
            key = (numel(slot.shape), f"{slot.rms:.5e}", f"{slot.mean / slot.rms:.4f}") if slot.telling else (index,)
            twins.append(seen.setdefault(key, index))
        return twins

    def _parents(self, op: Op) -> list[int]:
        return [self.of[edge.parent, edge.output] for edge in op.parents if (edge.parent, edge.output) in self.of]

    def _look(self, index: int, slot: Slot) -> None:
        try:
            array = self.array(index)
        except ValueUnavailable:
            return
        slot.known, slot.shape = True, _squeezed(array.shape)
        slot.sample = bounded(array.reshape(-1)[positions(array.size)].astype(np.float64))
        whole = bounded(array.astype(np.float64))
        slot.rms, slot.mean = root_mean_square(whole), float(whole.mean()) if whole.size else 0.0
        slot.spread = float(whole.std()) if whole.size else 0.0
        slot.telling = array.dtype.kind == "f" and array.size >= FEW and slot.spread > 1e-12 * slot.rms

    def array(self, index: int) -> Array:
        """Return the value of a slot as real numbers; raises ValueUnavailable."""
        if index in self._arrays:
            self._arrays.move_to_end(index)
            return self._arrays[index]
        slot = self.slots[index]
        array = to_numpy(self.history.trace.value(slot.op, slot.output))
        array = written_numbers(array, self.unwritten.get((slot.op, slot.output)))
        if array.dtype.kind not in "biufc":
            raise ValueUnavailable(f"values of type {array.dtype} are not compared")
        self._arrays[index] = as_real(array)
        if len(self._arrays) > KEPT:
            self._arrays.popitem(last=False)
        return self._arrays[index]

    def op_of(self, index: int) -> Op:
        """Return the operation that made a slot."""
        return self.ops[self.slots[index].op]

    def label(self, index: int) -> str:
        """Return the label of a slot's operation, with the output if there are several."""
        slot = self.slots[index]
        return value_label(self.history, slot.op, slot.output)

    def results(self) -> list[int]:
        """Return the slots that the run returned; without a model, those that nothing reads."""
        marked = [n for n, slot in enumerate(self.slots) if self.ops[slot.op].kind == "output"]
        return marked or [
            n for n, slot in enumerate(self.slots) if not self.children[n] and self.ops[slot.op].note != BESIDE
        ]

    def parameter(self, name: str) -> Array | None:
        """Return a parameter or buffer; None if its value is not there."""
        try:
            value = self.history.trace.stored_value(name)
            return None if value is None else as_real(to_numpy(value))
        except ValueUnavailable:
            return None


def value_label(history: ModelHistory, op: int, output: int) -> str:
    """Return the label of an operation, with the output if there are several: "max_1_3[1]"."""
    label, outputs = history.facts.layers.label(op), len(history.ops[op].outputs)
    if output >= outputs:
        return f"{label} written[{output - outputs}]"
    return label if outputs == 1 else f"{label}[{output}]"


def value_places(history: ModelHistory) -> dict[str, tuple[int, int]]:
    """Return the operation and output of each label, in order of execution."""
    return {
        value_label(history, op.index, output): (op.index, output)
        for op in history.ops
        for output in range(len(op.tensors))
    }


def as_real(array: Array) -> Array:
    """Return complex numbers as pairs, others unchanged."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def bounded(array: Array) -> Array:
    """Replace NaN, infinity and what masks add by zero."""
    odd = unbounded(array)
    return np.where(odd, 0.0, array) if odd.any() else array


def unbounded(array: Array) -> NDArray[np.bool_]:
    """Where an array holds NaN, infinity or numbers as large as masks add, far above its others."""
    size = np.abs(array)
    odd = ~np.isfinite(array)
    large = size >= HUGE
    if large.any() and not large.all():
        usual = float(np.median(size[~large & ~odd])) if (~large & ~odd).any() else 0.0
        odd |= large & (size > 1e3 * usual)
    return odd


def root_mean_square(array: Array) -> float:
    """Return the root of the mean square; 0 for nothing."""
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0


@cache
def positions(size: int) -> NDArray[np.int64]:
    """Return the places at which every value with `size` numbers is sampled."""
    if size <= SAMPLE:
        return np.arange(size)
    return np.sort(np.random.default_rng(size).choice(size, SAMPLE, replace=False)).astype(np.int64)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def numel(shape: tuple[int, ...]) -> int:
    """Return the number of elements."""
    return prod(shape)
