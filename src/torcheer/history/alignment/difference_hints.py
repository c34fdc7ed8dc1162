"""What the difference of two results looks like; a hint is given only where the numbers bear it out."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from torcheer.history.alignment.number_patterns import (
    describe_complex,
    describe_numbers,
    describe_order,
    turned_weight,
)
from torcheer.history.alignment.orders import REORDERED, arranged, orders_of, relative_error
from torcheer.history.alignment.parameter_pairs import pair_parameters
from torcheer.history.alignment.value_samples import numel
from torcheer.history.alignment.weight_changes import describe_change
from torcheer.history.numbers.unwritten_memory import is_uninitialised
from torcheer.terminal import first_names, human_shape, short_repr
from torcheer.vocabulary.dtypes import FLOATS

if TYPE_CHECKING:
    from torcheer.history.alignment.side import Side
    from torcheer.history.alignment.value_samples import Array, HistoryValues
    from torcheer.records import Op

LEAST = 1e-5  # relative error below which a pattern explains a difference, if rounding is not coarser
CREATIONS = frozenset("zeros_like ones_like full_like new_zeros new_ones new_full zeros ones full fill_".split())
COARSE = {f"torch.{row.name}": row.rounding_unit for row in FLOATS.values() if row.bytes <= 2}


def describe_difference(first: Side, index: int | None, second: Side, other: int | None) -> Iterator[str]:
    """Yield what was found out about two results that should be equal."""
    edits = list(_edits(first, index, second, other))
    yield from edits
    yield from _unwritten(first, index, second, other)
    if index is None or other is None:
        yield _one_sided(first, index)
        return
    op, other_op = first.values.op_of(index), second.values.op_of(other)
    if op.kind == other_op.kind == "input":
        yield "the two runs were given different inputs"
    if op.name.strip("_") == other_op.name.strip("_"):
        yield from _settings(op, other_op)
    weights = list(_parameters(first, index, second, other))
    yield from weights
    if not first.verdicts.good[index]:
        yield from _sources(first, index, second, other)
    yield from _reordered(first, second, other)
    left_out = list(_left_out(first, index, second, other))
    yield from left_out
    yield from _constants(first, index, second, other)
    x, y = first.values.array(index), second.values.array(other)
    if x.size != y.size:
        yield f"shape {human_shape(x.shape)} against {human_shape(y.shape)}"
        return
    x, error = turned(x, y)
    yield from _coarse_precision(first, index, second, other, error)
    if edits or any(": " in hint for hint in weights):  # what the numbers look like follows from it
        return
    limit = min(max(LEAST, 4 * second.verdicts.expected[other]), 0.1 * error)
    if all(side.values.slots[n].dtype.startswith("torch.complex") for side, n in ((first, index), (second, other))):
        yield from describe_complex(_as_complex(x), _as_complex(y), limit)
        return
    read = () if left_out else second.verdicts.sources[other]  # of another input, it is the same activation
    sources = [second.values.array(source) for source in read]
    matrices = [first.values.parameter(name) for name in first.parameters_read(index)]
    hint = turned_weight(x, y, sources, [matrix for matrix in matrices if matrix is not None])
    if hint:
        yield hint
        return
    yield from describe_numbers(x, y, limit, sources, _arrays(first.values) | _arrays(second.values))


def _edits(first: Side, index: int | None, second: Side, other: int | None) -> Iterator[str]:
    """Yield the operations on the way that an edit was applied to in one of the histories."""
    for which, side, end in (("first", first, index), ("second", second, other)):
        ops = sorted({side.values.slots[n].op for n in side.region(end)}) if end is not None else []
        for op in ops:
            edited = side.values.ops[op].edited
            if edited and edited != _edited_there(side, op):
                label = side.values.history.facts.layers.label(op)
                yield f"the {which} was edited at {label}: {edited.removeprefix('edited ')}"


def _edited_there(side: Side, op: int) -> str:
    """Return the edit of an operation's counterpart."""
    pair = side.pairs.get(side.values.of.get((op, 0), -1))
    return side.others.op_of(pair.partner).edited if pair is not None else ""


def _unwritten(first: Side, index: int | None, second: Side, other: int | None) -> Iterator[str]:
    """Yield the operations on the way that compute with memory that nothing has written."""
    for which, side, end in (("first", first, index), ("second", second, other)):
        values = side.values
        for n in sorted(side.region(end)) if end is not None else []:
            slot, op = values.slots[n], values.op_of(n)
            is_read = not (op.view or op.inplace or (slot.op, slot.output) in values.unwritten)
            empty = [p for p in slot.parents if (values.slots[p].op, values.slots[p].output) in values.unwritten]
            if is_read and empty and not is_uninitialised(op):
                names = first_names(map(values.label, empty))
                yield f"{values.label(n)} of the {which} reads uninitialised memory: {names}"


def _as_complex(pairs: Array) -> Array:
    return np.asarray(pairs[..., 0] + 1j * pairs[..., 1])


def turned(first: Array, second: Array) -> tuple[Array, float]:
    """Return the first array in the axes of the second, where exchanging them brings it nearer, and the error."""
    best = first.reshape(second.shape), relative_error(first.reshape(-1), second.reshape(-1))
    if first.shape != second.shape:
        for order in orders_of(tuple(length for length in first.shape if length != 1)):
            flat = arranged(first, order)
            error = relative_error(flat, second.reshape(-1))
            if error < best[1]:
                best = flat.reshape(second.shape), error
    return best


def _one_sided(first: Side, index: int | None) -> str:
    if index is None:
        return "the first history holds nothing that does not agree: this is computed in the second only"
    return f"the second history ends before it: nothing there corresponds to {first.values.label(index)}"


def _settings(op: Op, other: Op) -> Iterator[str]:
    ours: dict[Any, Any] = {tuple(where): value for where, value in op.settings}
    theirs: dict[Any, Any] = {tuple(where): value for where, value in other.settings}
    both = [
        where
        for where in dict.fromkeys([*ours, *theirs])
        if isinstance(where[0], str) or (where in ours) == (where in theirs)
    ]
    for where in both:
        values = [short_repr(side[where]) if where in side else "not given" for side in (ours, theirs)]
        if values[0] != values[1] and not _same_axis(ours.get(where), theirs.get(where), len(op.outputs[0].shape)):
            yield f"argument {'.'.join(map(str, where))}: {values[0]} against {values[1]}"


def _same_axis(first: Any, second: Any, axes: int) -> bool:
    return isinstance(first, int) and isinstance(second, int) and abs(first - second) == axes


def _parameters(first: Side, index: int, second: Side, other: int) -> Iterator[str]:
    """Yield parameters that stand where the first history has others, and what is other about them."""
    op, other_op = first.values.op_of(index), second.values.op_of(other)
    names = pair_parameters(second.values, first.values) if first.parameters_read(index) else {}
    for expected, name in _read_in_turn(first, index, second, other, names):
        actual = names.get(name, expected)
        if actual != expected:
            if op.name == other_op.name:
                yield f"{name} of the second holds what is {actual} in the first history, where {expected} is read"
            continue
        ours, theirs = first.values.parameter(expected), second.values.parameter(name)
        if ours is None or theirs is None:
            continue
        change = describe_change(ours, theirs, either_way=op.name != other_op.name)
        if change is not None:
            same = "that" if name == expected else expected
            yield f"{name} of the second holds other numbers than {same} of the first{change}"


def _read_in_turn(
    first: Side, index: int, second: Side, other: int, names: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the parameters that two operations read in the same place, or by different functions under one name."""
    op, other_op = first.values.op_of(index), second.values.op_of(other)
    if op.name == other_op.name and op.stored and other_op.stored:
        ours = {stored.where: stored.name for stored in op.stored}
        yield from ((ours[stored.where], stored.name) for stored in other_op.stored if stored.where in ours)
        return
    read = first.parameters_read(index)
    for name in sorted(second.parameters_read(other)):
        expected = names.get(name, name)
        if expected in read:
            yield expected, name


def _sources(first: Side, index: int, second: Side, other: int) -> Iterator[str]:
    """Yield where the two read different values, or the same in another order."""
    ours = list(first.verdicts.sources[index])
    theirs = [second.pairs[source].partner for source in second.verdicts.sources[other]]
    missing = [n for n in ours if not any(_same_numbers(first, n, m) for m in theirs)]
    extra = [m for m in theirs if not any(_same_numbers(first, n, m) for n in ours)]
    if missing:
        yield f"the first reads {first_names(map(first.values.label, missing))}, the second does not"
    if extra:
        yield f"the second reads {first_names(map(first.values.label, extra))}, which the first does not read there"
    if not missing and not extra and len(ours) > 1:
        order = [next(n for n, m in enumerate(ours) if _same_numbers(first, m, k)) for k in theirs]
        if order != sorted(order):
            names = [first.values.label(k) for k in theirs]
            yield f"the second reads them in another order: {', then '.join(names[:4])}"


def _same_numbers(side: Side, index: int, other: int) -> bool:
    return side.values.twin[index] == side.values.twin[other]


def _reordered(first: Side, second: Side, other: int) -> Iterator[str]:
    """Yield the values on the way that hold the numbers of an agreeing one in another order."""
    reordered = {
        index
        for index in second.region(other) - {other}
        if index in second.pairs and second.pairs[index].order == REORDERED
    }
    for index in sorted(reordered):
        pair = second.pairs[index]
        if not reordered & set(second.values.children[index]):  # the last of several that only rearrange
            x, y = first.values.array(pair.partner), second.values.array(index)
            pattern = next(describe_order(x, y, LEAST), "") if x.shape == y.shape else ""
            text = f"{second.values.label(index)} holds {first.values.label(pair.partner)} in another order"
            yield f"{text}: {pattern}" if pattern else text


def _constants(first: Side, index: int, second: Side, other: int) -> Iterator[str]:
    """Yield the values on the way that hold one number everywhere, made of several: a softmax over an axis of 1."""
    for which, side, end in (("first", first, index), ("second", second, other)):
        for n in sorted(side.region(end)):
            slot = side.values.slots[n]
            made_of_several = any(side.values.slots[parent].telling for parent in slot.parents)
            is_constant = slot.known and numel(slot.shape) > 1 and 0 < abs(slot.mean) >= 1e7 * slot.spread
            if is_constant and made_of_several and side.values.op_of(n).name not in CREATIONS:
                yield f"{side.values.label(n)} of the {which} is {slot.mean:.4g} everywhere"


def _left_out(first: Side, index: int, second: Side, other: int) -> Iterator[str]:
    """Yield a step of the first that the second leaves out: the same function goes on from what went into it."""
    readers: dict[int, set[str]] = {}  # value of the first -> functions that read its counterpart in the second
    for n in second.region(other):
        for source in second.values.slots[n].parents:
            if source in second.pairs and second.verdicts.good[source]:
                twin = first.values.twin[second.pairs[source].partner]
                readers.setdefault(twin, set()).add(second.values.op_of(n).name)
    for n in sorted(first.region(index) - {index}):
        parents = [parent for parent in first.values.slots[n].parents if first.given[parent]]
        if len(parents) == 1 and not _only_passes_on(first, n, parents[0]):
            if _next_names(first, n) & readers.get(first.values.twin[parents[0]], set()):
                label = first.values.label(parents[0])
                yield f"the second leaves out {first.values.label(n)}: it goes on from {label}"


def _next_names(side: Side, index: int) -> set[str]:
    """Return the functions that read a value, be it through a view or after a dropout that does nothing."""
    names, queue = set[str](), [index]
    while queue:
        for child in side.values.children[queue.pop()]:
            names.add(side.values.op_of(child).name)
            if _only_passes_on(side, child, index):
                queue.append(child)
    return names


def _only_passes_on(side: Side, index: int, parent: int) -> bool:
    """Whether an operation returns the numbers that it reads: a view, a dropout in eval mode."""
    slot, read = side.values.slots[index], side.values.slots[parent]
    if numel(slot.shape) != numel(read.shape) or not slot.known or not read.known:
        return False
    return side.values.op_of(index).view or np.array_equal(np.asarray(slot.sample), np.asarray(read.sample))


def _coarse_precision(first: Side, index: int, second: Side, other: int, error: float) -> Iterator[str]:
    """Yield that one side computes in a coarser type, if its rounding is as large as the difference."""
    types = [{side.values.slots[n].dtype for n in side.region(end)} for side, end in ((first, index), (second, other))]
    for which, mine, its in (("first", types[0], types[1]), ("second", types[1], types[0])):
        for name in mine - its:
            if name in COARSE and error < 8 * COARSE[name] and error != inf:
                yield f"the {which} computes here in {name.removeprefix('torch.')}, whose rounding is as large as this"


def _arrays(values: HistoryValues) -> dict[str, Array]:
    """Return the vectors among the parameters, by name: biases and scales."""
    names = dict.fromkeys(stored.name for op in values.ops for stored in op.stored if len(stored.shape) == 1)
    arrays = {name: values.parameter(name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None and np.any(array)}
