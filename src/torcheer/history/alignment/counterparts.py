"""Which two results should have been equal where histories part: the smallest cut that the evidence supports."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from torcheer.history.alignment.orders import AS_IS, REORDERED
from torcheer.history.alignment.pairing import CLOSE
from torcheer.history.alignment.parameter_pairs import pair_parameters
from torcheer.history.alignment.side import Side
from torcheer.history.alignment.value_samples import Array, numel, root_mean_square, unbounded

Ends = tuple[int, int]  # a value of the first history, one of the second
AHEAD = 24  # values after the split among which its ends are looked for
NEAR = 6  # of which pairs are compared number by number
RELATED = 0.3  # what is left of a result after the best scale and shift, if the two mean the same


def find_ends(first: Side, second: Side, start: int) -> tuple[int | None, int, bool]:
    """Return the two results that should be equal: one made from `start` of the second history, and its counterpart.

    The third says whether there is evidence that they belong together.
    """
    beginning = _beginning(first, second, start)
    if beginning is None:
        return None, start, False
    ours, theirs = first.downstream({beginning}), second.downstream({start})
    shifted = list(_shifted(first, ours[:NEAR], second, theirs[:NEAR]))
    candidates = shifted or [
        *_paired(first, second, theirs),
        *_namesakes(first, second, theirs),
        *_fed(first, second, ours, theirs),
        *_scaled(first, ours[:AHEAD], second, theirs[:AHEAD]),
        *_joined(first, ours, second, theirs),
    ]
    if not candidates:
        return beginning, start, False
    names = _names_read(first, second, theirs)
    candidates = [ends for ends in candidates if _reads_as_much(first, second, ends, names)] or candidates
    sizes = {(a, b): len(first.region(a)) + len(second.region(b)) for a, b in candidates}
    a, b = min(candidates, key=lambda ends: (sizes[ends], ends[1], ends[0]))
    return _before_views(first, a), _before_views(second, b), True


def _beginning(first: Side, second: Side, start: int) -> int | None:
    """Return where the first history is wrong after the same values as `start`."""
    sources = _sources_of(first, second, start)
    shared = {index: len(sources & _own_sources(first, index)) for index in first.starts}
    return min(first.starts, key=lambda index: (-shared[index], index), default=None)


def _paired(first: Side, second: Side, theirs: list[int]) -> Iterator[Ends]:
    """Yield wrong values that are nearest to each other, or the same function of the same values, or reordered."""
    wrong = set(first.wrong)
    for other in theirs:
        pair = second.pairs.get(other)
        if pair is None:
            continue
        if pair.order == REORDERED:  # a fault only where the first history arranges the same numbers otherwise
            twin = first.values.twin
            children = [n for n in first.values.children[pair.partner] if twin[n] == twin[pair.partner]]
            yield from ((child, other) for child in children[:1] if child in wrong)
        elif pair.order != AS_IS and not pair.firm:
            if pair.error <= CLOSE or pair.partner in wrong:
                yield pair.partner, other
        elif pair.partner in wrong and (pair.by != "label" or first.values.op_of(pair.partner).kind == "input"):
            if second.is_mutual(other, pair):
                yield pair.partner, other


def _namesakes(first: Side, second: Side, theirs: list[int]) -> Iterator[Ends]:
    """Yield results of the same function that start from the same values, or half of them."""
    for other in theirs:
        sources = _sources_of(first, second, other)
        name, slot = _name(second, other), second.values.slots[other]
        for index in first.wrong:
            ours = _own_sources(first, index)
            shared, same_shape = len(ours & sources), first.values.slots[index].shape == slot.shape
            both = first.region(index), second.region(other)
            enough = ours == sources or (2 * shared >= max(len(ours), len(sources)) and max(map(len, both)) == 1)
            if same_shape and shared and enough:
                if _name(first, index) == name:
                    yield index, other
                    break


def _fed(first: Side, second: Side, ours: list[int], theirs: list[int]) -> Iterator[Ends]:
    """Yield operations that read the same parameters, and what goes into them."""
    names = pair_parameters(first.values, second.values)
    known = set[str]().union(*(second.parameters_read(other) for other in theirs))
    read = {other: second.parameters_above[other] for other in theirs}
    for a in ours:
        wanted = {names[name] for name in first.parameters_read(a) if name in names} & known
        size = numel(first.values.slots[a].shape)
        b = next((n for n in theirs if wanted <= read[n] and numel(second.values.slots[n].shape) == size), None)
        if wanted and b is not None:
            yield a, b
            inputs = _entries(first, a, first.parameters_read(a)), _entries(second, b, wanted)
            same_name = first.values.op_of(a).name == second.values.op_of(b).name
            if not inputs[0] and same_name:  # the first has what the second should have
                parents = {parent for parent in first.values.slots[a].parents if first.given[parent]}
                inputs = {n for n in parents if not any(_is_source(first, n, second, m) for m in inputs[1])}, inputs[1]
            sizes = {
                numel(side.values.slots[n].shape) for side, entries in zip((first, second), inputs) for n in entries
            }
            if len(inputs[0]) == len(inputs[1]) == len(sizes) == 1:
                yield inputs[0].pop(), inputs[1].pop()


def _entries(side: Side, index: int, names: set[str]) -> set[int]:
    """Return the wrong values that meet one of these parameters on the way to `index`."""
    carrying = {value for value in side.region(index) if side.parameters_above[value] & names}
    parents = {parent for value in carrying for parent in side.values.slots[value].parents}
    return {parent for parent in parents - carrying if parent in side.wrong and side.given[parent]}


def _is_source(first: Side, index: int, second: Side, other: int) -> bool:
    """Whether the second only goes on from a value where the first has it, by another function."""
    pair = second.pairs.get(other)
    same = _name(first, index) == _name(second, other) or (pair is not None and pair.order == REORDERED)
    return not same and first.values.twin[index] in _sources_of(first, second, other)


def _joined(first: Side, ours: list[int], second: Side, theirs: list[int]) -> Iterator[Ends]:
    """Yield the last values that are made of the same agreeing ones and nothing else."""
    last = {_own_sources(first, index): index for index in ours}
    for other in theirs:
        sources = _sources_of(first, second, other)
        index = last.get(sources)
        if index is not None and numel(first.values.slots[index].shape) == numel(second.values.slots[other].shape):
            if not any(_sources_of(first, second, child) == sources for child in second.values.children[other]):
                yield index, other


def _shifted(first: Side, ours: list[int], second: Side, theirs: list[int]) -> Iterator[Ends]:
    """Yield results that differ by one number for each channel: a bias, or a running mean, is another."""
    for a in ours:
        for b in theirs:
            x, y = first.values.slots[a], second.values.slots[b]
            if (
                x.telling
                and y.telling
                and x.shape == y.shape
                and _is_shift(first.values.array(a), second.values.array(b))
            ):
                yield a, b


def _is_shift(x: Array, y: Array) -> bool:
    if unbounded(x).any() or unbounded(y).any():
        return False
    gap = y.reshape(x.shape).astype(np.float64) - x
    largest = root_mean_square(gap)
    for axis, length in enumerate(gap.shape):
        others = tuple(n for n in range(gap.ndim) if n != axis)
        if 1 < length <= gap.size // 8 and root_mean_square(gap - gap.mean(others, keepdims=True)) <= 1e-3 * largest:
            return True
    return False


def _names_read(first: Side, second: Side, theirs: list[int]) -> dict[str, str]:
    """Return the parameters of the first by name that the second reads in `theirs`, with the names they have there."""
    read = set[str]().union(*(second.parameters_read(other) for other in theirs))
    return {name: other for name, other in pair_parameters(first.values, second.values).items() if other in read}


def _reads_as_much(first: Side, second: Side, ends: Ends, names: dict[str, str]) -> bool:
    """Whether the second has read all parameters that the first has, of those that it reads at all.

    Two operations that read the same values are alike whatever their parameters: the wrong ones may be the fault.
    """
    a, b = ends
    regions = first.region(a), second.region(b)
    if max(map(len, regions)) <= 1 and _name(first, a) == _name(second, b):
        return True
    return {names[name] for name in first.parameters_above[a] if name in names} <= second.parameters_above[b]


def _name(side: Side, index: int) -> str:
    return side.values.op_of(index).name.strip("_")


def _own_sources(first: Side, index: int) -> frozenset[int]:
    return frozenset(first.values.twin[source] for source in first.verdicts.sources[index])


def _sources_of(first: Side, second: Side, other: int) -> frozenset[int]:
    """Return what a value of the second history starts from, as values of the first."""
    return frozenset(first.values.twin[second.pairs[source].partner] for source in second.verdicts.sources[other])


def _scaled(first: Side, ours: list[int], second: Side, theirs: list[int]) -> Iterator[Ends]:
    """Yield results that are nearest to each other up to a factor and a shift."""
    left = np.array([[_left(first, a, second, b) for b in theirs] for a in ours])
    for n, a in enumerate(ours):
        m = int(np.argmin(left[n])) if theirs else 0
        if theirs and left[n, m] <= RELATED and left[n, m] <= left[:, m].min():
            yield a, theirs[m]


def _left(first: Side, a: int, second: Side, b: int) -> float:
    """Return the share of one result that no factor and shift of the other explains."""
    x, y = first.values.slots[a], second.values.slots[b]
    if numel(x.shape) != numel(y.shape) or not (x.telling and y.telling) or x.sample is None or y.sample is None:
        return inf
    if not x.sample.std() or not y.sample.std():
        return inf
    likeness = float(np.corrcoef(x.sample, y.sample)[0, 1])
    return float(np.sqrt(max(0.0, 1 - likeness**2)))


VIEWS = frozenset("reshape contiguous clone detach to flatten type_as float".split())


def _before_views(side: Side, index: int) -> int:
    """Step back over operations that only arrange the numbers of a wrong value."""
    while side.values.op_of(index).view or side.values.op_of(index).name in VIEWS:
        parents = side.values.slots[index].parents
        pair = side.pairs.get(index)
        if len(parents) != 1 or parents[0] not in side.wrong or (pair and pair.order == REORDERED):
            break
        index = parents[0]
    return index
