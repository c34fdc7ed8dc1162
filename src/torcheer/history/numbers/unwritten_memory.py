"""Which numbers of a history are uninitialised memory: what `torch.empty` returned and nothing has written since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ValueUnavailable
from torcheer.history.call_values import op_arguments
from torcheer.history.value_arrays import equal_bits, to_numpy
from torcheer.records import Edge, Op

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

UNINITIALISED: Final = frozenset(
    """empty empty_like new_empty empty_strided new_empty_strided resize_ resize_as_ empty_permuted
    empty_quantized""".split()
)
_FILLING: Final = frozenset(
    "copy_ fill_ zero_ uniform_ normal_ random_ exponential_ bernoulli_ cauchy_ geometric_ log_normal_".split()
)
_IN_ORDER: Final = frozenset(  # their results hold the numbers of what they read, one after the other
    """view view_as reshape reshape_as flatten unflatten ravel squeeze unsqueeze contiguous clone detach to float double
    half bfloat16 type type_as cpu cuda""".split()
)


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The places of one value that nothing has written."""

    places: NDArray[np.bool_]  # of the value's shape
    is_sure: bool = True  # False for a view of a partly written value: which of its places were is not known

    @property
    def is_whole(self) -> bool:
        """Whether all of it is known to be unwritten."""
        return self.is_sure and bool(self.places.all())


Places = dict[tuple[int, int], Unwritten]  # by operation and output


def is_uninitialised(op: Op) -> bool:
    """Whether an operation returns memory as it finds it; `x.new(2, 3)` does, `x.new([2, 3])` copies numbers."""
    if op.name == "new":
        return len(op.parents) <= 1 and op.outputs[0].shape == tuple(value for _, value in op.settings)
    return op.name in UNINITIALISED


def unwritten_memory(history: ModelHistory) -> Places:
    """Return the unwritten places of each value that has some."""
    places: Places = {}
    if any(is_uninitialised(op) for op in history.ops):
        for op in history.ops:
            for output in range(len(op.tensors)):
                found = _unwritten(history, op, output, places)
                if found is not None and found.places.any():
                    places[op.index, output] = found
    return places


def unwritten_in_either(first: Places, second: Places) -> Places:
    """Return the places that two runs of one program leave unwritten: memory may hold what is written to it next."""
    both = {place: [side[place] for side in (first, second) if place in side] for place in {**first, **second}}
    return {
        place: Unwritten(np.logical_or.reduce([each.places for each in found]), all(each.is_sure for each in found))
        for place, found in both.items()
    }


def written_numbers(array: NDArray[Any], unwritten: Unwritten | None) -> NDArray[Any]:
    """Return an array with zeros where memory is uninitialised; raises ValueUnavailable if it is not known where."""
    if unwritten is None:
        return array
    if not unwritten.is_sure or array.shape != unwritten.places.shape:
        raise ValueUnavailable("some of it is uninitialised memory")
    return np.where(unwritten.places, np.zeros((), array.dtype), array)


def _unwritten(history: ModelHistory, op: Op, output: int, known: Places) -> Unwritten | None:
    """Return the unwritten places of a value, given those of what it was made of."""
    shape = op.tensors[output].shape
    if is_uninitialised(op):
        places = np.ones(prod(shape), bool)
        if op.name.startswith("resize"):  # keeps what there was
            edge = op.parents[0]
            places[: prod(history.ops[edge.parent].tensors[edge.output].shape)] = False
        return Unwritten(places.reshape(shape))
    read = [edge for edge in op.parents if edge.where[:1] != ("out",)]
    partly = [edge for edge in read if (edge.parent, edge.output) in known]
    if not partly or op.name in _FILLING or op.name.startswith("new_") or op.name.endswith("_like"):
        return None
    all_unwritten = not op.stored and all(
        (edge.parent, edge.output) in known and known[edge.parent, edge.output].is_whole for edge in read
    )
    writes = op.kind == "alias" or "setitem" in op.name or "fill" in op.name
    if all_unwritten and not writes:
        return Unwritten(np.ones(shape, bool))
    if op.inplace or op.kind == "alias":
        return _left_by_write(history, op, output, known, partly)
    before = known[partly[0].parent, partly[0].output]
    if op.kind == "output" or op.name in _IN_ORDER:
        if before.places.size == prod(shape):
            return Unwritten(before.places.reshape(shape), before.is_sure)
    if op.name == "__getitem__" and before.is_sure:
        part = _indexed(history, op, before.places)
        if part is not None and part.shape == shape:
            return Unwritten(part)
    return Unwritten(np.ones(shape, bool), is_sure=False) if op.view or op.kind == "output" else None


def _left_by_write(history: ModelHistory, op: Op, output: int, known: Places, partly: list[Edge]) -> Unwritten | None:
    """Return the places that a write into partly written memory has left as they were."""
    shape = op.tensors[output].shape
    target = next((edge for edge in partly if known[edge.parent, edge.output].places.shape == shape), None)
    if target is None:
        return None
    before = known[target.parent, target.output]
    try:
        old, new = (_array(history, *place) for place in ((target.parent, target.output), (op.index, output)))
    except ValueUnavailable:
        return Unwritten(before.places, is_sure=False)
    left = before.places & equal_bits(old, new)
    rest = _outside_index(history, op, before.places) if op.name == "__setitem__" else None
    if rest is not None and not (rest & ~left).any():
        return Unwritten(rest, before.is_sure)
    if new.dtype.kind in "fc" and _writes_nan(history, op, known):  # memory may hold the NaN that is written to it
        left &= ~np.isnan(new)
    return Unwritten(left, before.is_sure)


def _outside_index(history: ModelHistory, op: Op, places: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Return the places that `target[index] = numbers` does not write, of those given; None if that is not known."""
    numbers = np.arange(places.size).reshape(places.shape)
    written = _indexed(history, op, numbers)
    return None if written is None else places & ~np.isin(numbers, written)


def _indexed(history: ModelHistory, op: Op, array: NDArray[Any]) -> NDArray[Any] | None:
    """Return `array[index]` for the index that an operation was given; None if it cannot be had."""
    parts = [argument for argument in op_arguments(op) if argument.where[0] == 1]
    try:
        index = [
            _array(history, part.parent, part.output)
            if part.parent >= 0
            else _stored_array(history, part.stored)
            if part.stored
            else part.setting
            for part in parts
        ]
        return np.asarray(array[tuple(index)]) if index else None
    except (ValueUnavailable, IndexError, TypeError, ValueError):
        return None


def _writes_nan(history: ModelHistory, op: Op, known: Places) -> bool:
    """Whether one of the other values that an operation read holds NaN."""
    others = [(edge.parent, edge.output) for edge in op.parents if (edge.parent, edge.output) not in known]
    reads = [partial(_array, history, *place) for place in others]
    return any(map(_holds_nan, [*reads, *(partial(_stored_array, history, stored.name) for stored in op.stored)]))


def _holds_nan(read: Callable[[], NDArray[Any]]) -> bool:
    try:
        array = read()
    except ValueUnavailable:
        return False
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


def _stored_array(history: ModelHistory, name: str) -> NDArray[Any]:
    return to_numpy(history.trace.stored_value(name))


def _array(history: ModelHistory, op: int, output: int) -> NDArray[Any]:
    return to_numpy(history.trace.value(op, output))
