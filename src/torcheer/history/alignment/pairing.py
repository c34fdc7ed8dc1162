"""Which value of one history is which of another: by their numbers first, then along the dataflow, then by label."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from torcheer.history.alignment.orders import (
    AS_IS,
    REORDERED,
    Axes,
    arranged,
    is_reordered,
    orders_of,
    relative_error,
    sample_distances,
    sample_in_order,
)
from torcheer.history.alignment.parameter_pairs import pair_parameters
from torcheer.history.alignment.value_samples import Array, HistoryValues, Slot, numel

LOOSE = 0.3  # two values this close are versions of one
CLOSE = 0.05  # closer than this, exchanged axes are not tried
CHANCE = 1e-6  # values that may be equal by chance must be this close
NEAREST = 12  # candidates whose axes are exchanged


@dataclass(frozen=True, slots=True)
class Pair:
    """A value and its counterpart in the other history."""

    partner: int  # slot of the other history
    error: float  # relative; inf if they cannot be compared
    by: str = "value"  # or "dataflow", "parameters", "label", "position"
    order: Axes = AS_IS  # exchange of the partner's axes that makes them equal
    explained: bool = True  # whether a permute exchanges the axes, or the shape shows their order

    @property
    def firm(self) -> bool:
        """Whether it shows that both are right: a product that comes out transposed does not."""
        return self.by in ("value", "position") and self.order != REORDERED and (self.order == AS_IS or self.explained)


Pairs = dict[int, Pair]
Name = tuple[str, int, int]  # of a layer or module, with its pass and the output


def pair_by_position(values: HistoryValues, others: HistoryValues) -> Pairs:
    """Pair the values of two runs of the same program."""
    return {n: Pair(n, compare_slots(values, n, others, n), "position") for n in range(len(values.slots))}


def pair_values(values: HistoryValues, others: HistoryValues) -> Pairs:
    """Return the counterpart of each value of `values`, where there is one."""
    pairs: Pairs = {}
    search = Search(values, others, pairs)
    for index, slot in enumerate(values.slots):
        pair = search.by_value(index, slot) if slot.known else None
        if pair is not None:
            pairs[index] = pair
    _pair_by_structure(values, others, pairs)
    return pairs


def compare_slots(values: HistoryValues, index: int, others: HistoryValues, other: int) -> float:
    """Return the relative error of two slots in the order they stand; inf if it cannot be had."""
    first, second = values.slots[index], others.slots[other]
    if not (first.known and second.known) or numel(first.shape) != numel(second.shape):
        return inf
    return relative_error(values.array(index).reshape(-1), others.array(other).reshape(-1))


class Search:
    """The values of the other history by size, to look up what is near."""

    def __init__(self, values: HistoryValues, others: HistoryValues, pairs: Pairs) -> None:
        self.values, self.others, self.pairs = values, others, pairs
        by_size: dict[int, list[int]] = defaultdict(list)
        for index, slot in enumerate(others.slots):
            if slot.known:
                by_size[numel(slot.shape)].append(index)
        self.by_size = {size: (candidates, _samples(others, candidates)) for size, candidates in by_size.items()}

    def by_value(self, index: int, slot: Slot) -> Pair | None:
        """Return the counterpart of one value, if a value is near."""
        size = numel(slot.shape)
        if size not in self.by_size or slot.sample is None:
            return None
        candidates, samples = self.by_size[size]
        distances = sample_distances(slot.sample, samples)
        if not slot.telling:
            return self._choose(index, candidates, distances, AS_IS, CHANCE, same_name=True)
        pair = self._choose(index, candidates, distances, AS_IS, LOOSE)
        if pair is None or pair.error > CLOSE:
            exchanged = self._exchanged(index, slot, candidates)
            if exchanged and (pair is None or exchanged.error < 0.1 * pair.error):
                return exchanged
        return pair or self._reordered(index, slot)

    def _choose(
        self, index: int, candidates: list[int], distances: Array, order: Axes, limit: float, *, same_name: bool = False
    ) -> Pair | None:
        near = [n for n in np.argsort(distances, kind="stable") if distances[n] <= limit]
        if same_name:
            name = _name(self.values, index)
            near = [n for n in near if _name(self.others, candidates[n]) == name]
        if not near:
            return None
        ties = [candidates[n] for n in near if distances[n] <= 1.05 * distances[near[0]] + 2e-7]
        ties.sort(key=lambda other: self._preference(index, other))
        rest = [candidates[n] for n in near[:NEAREST] if candidates[n] not in ties]
        for other in [*ties[:NEAREST], *rest]:
            error = relative_error(self.values.array(index).reshape(-1), arranged(self.others.array(other), order))
            if error <= max(limit, CHANCE):
                return Pair(other, error, order=order, explained=self._is_explained(index, other, order))
        return None

    def _is_explained(self, index: int, other: int, order: Axes) -> bool:
        """Whether an exchange of axes was made by a view, here or further up, or is seen in the shape."""
        slot = self.values.slots[index]
        above = [self.pairs[parent] for parent in slot.parents if parent in self.pairs]
        if self.values.op_of(index).view or any(pair.order == order and pair.explained for pair in above):
            return True
        return slot.shape != self.others.slots[other].shape

    def _preference(self, index: int, other: int) -> tuple[object, ...]:
        """Rank equal candidates: those that read counterparts of what this one reads, then name, shape and place."""
        slot, candidate = self.values.slots[index], self.others.slots[other]
        read = {self.pairs[parent].partner for parent in slot.parents if parent in self.pairs}
        mine, theirs = self.values.op_of(index), self.others.op_of(other)
        place = abs(index / len(self.values.slots) - other / len(self.others.slots))
        return (
            mine.kind != theirs.kind,
            -len(read & set(candidate.parents)),
            mine.name != theirs.name,
            slot.shape != candidate.shape,
            place,
        )

    def _exchanged(self, index: int, slot: Slot, candidates: list[int]) -> Pair | None:
        assert slot.sample is not None
        near = [other for other in candidates if _alike(slot, self.others.slots[other])]
        near.sort(key=lambda other: abs(self.others.slots[other].rms - slot.rms))
        best: tuple[float, int, Axes] = (LOOSE, -1, AS_IS)
        for other in near[:NEAREST]:
            orders = orders_of(self.others.slots[other].shape)
            if orders:
                samples = np.stack([sample_in_order(self.others.array(other), order) for order in orders])
                distances = sample_distances(slot.sample, samples)
                best = min(best, (float(distances.min()), other, orders[int(distances.argmin())]))
        distance, other, order = best
        if other < 0:
            return None
        return self._choose(index, [other], np.array([distance]), order, LOOSE)

    def _reordered(self, index: int, slot: Slot) -> Pair | None:
        """Pair a value that holds the numbers of one it reads, in another order."""
        for parent in slot.parents:
            pair = self.pairs.get(parent)
            near = self.values.slots[parent]
            if pair and numel(near.shape) == numel(slot.shape) and _alike(slot, near, 1e-6):
                if is_reordered(self.values.array(index), self.values.array(parent), CHANCE):
                    return Pair(pair.partner, inf, order=REORDERED)
        return None


def _samples(values: HistoryValues, indices: list[int]) -> Array:
    return np.stack([np.asarray(values.slots[index].sample) for index in indices])


def _alike(slot: Slot, other: Slot, limit: float = 0.1) -> bool:
    scale = max(slot.rms, other.rms)
    return abs(slot.rms - other.rms) <= limit * scale and abs(slot.mean - other.mean) <= limit * scale


def _name(values: HistoryValues, index: int) -> str:
    return values.op_of(index).name.strip("_")


# What no numbers connect


def _pair_by_structure(values: HistoryValues, others: HistoryValues, pairs: Pairs) -> None:
    """Pair the rest: same function of paired values, or of the same parameters, or the same label."""
    taken = {pair.partner for pair in pairs.values()}
    readers = _readers(others, pair_parameters(values, others))
    slots_of = _labels if values.has_structure and others.has_structure else _module_results
    named, own_names = slots_of(others), defaultdict[int, list[Name]](list)
    for name, index in slots_of(values).items():
        own_names[index].append(name)
    for index in range(len(values.slots)):
        if index in pairs and pairs[index].order != REORDERED:
            continue
        choices = [
            ("dataflow", _same_function(values, others, index, pairs)),
            ("parameters", readers(values, index)),
            ("label", [n for n in _namesakes(named, own_names[index]) if _same_shape(values, index, others, n)]),
        ]
        for by, candidates in choices:
            partner = next(
                (other for other in candidates if other not in taken and _same_kind(values, index, others, other)), None
            )
            if partner is not None:
                error = compare_slots(values, index, others, partner)
                pairs.setdefault(index, Pair(partner, error, by))
                taken.add(partner)
                break


def _namesakes(named: Mapping[Name, int], names: list[Name]) -> list[int]:
    return [named[name] for name in names if name in named]


def _same_kind(values: HistoryValues, index: int, others: HistoryValues, other: int) -> bool:
    return values.op_of(index).kind == others.op_of(other).kind


def _same_shape(values: HistoryValues, index: int, others: HistoryValues, other: int) -> bool:
    return values.slots[index].shape == others.slots[other].shape


def _same_function(values: HistoryValues, others: HistoryValues, index: int, pairs: Pairs) -> list[int]:
    """Return the values that the same function made of the counterparts of what this one reads."""
    parents = [pairs[parent].partner for parent in values.slots[index].parents if parent in pairs]
    slot, name = values.slots[index], _name(values, index)
    counts: dict[int, int] = defaultdict(int)
    for parent in parents:
        for child in others.children[parent]:
            if _name(others, child) == name and others.slots[child].output == slot.output:
                counts[child] += 1
    return sorted(counts, key=lambda child: (-counts[child], others.slots[child].shape != slot.shape, child))


class _readers:
    """The values that operations of the other history made with the counterparts of parameters."""

    def __init__(self, others: HistoryValues, names: dict[str, str]) -> None:
        self.names = names
        self.others = others
        self.by_name: dict[str, list[int]] = defaultdict(list)
        for index in range(len(others.slots)):
            for stored in others.op_of(index).stored:
                self.by_name[stored.name].append(index)

    def __call__(self, values: HistoryValues, index: int) -> list[int]:
        size = numel(values.slots[index].shape)
        names = [self.names[stored.name] for stored in values.op_of(index).stored if stored.name in self.names]
        readers = [other for name in names for other in self.by_name[name]]
        made = bool(values.slots[index].parents)  # what is made of parameters alone is no result of a layer
        slots = self.others.slots
        return [other for other in readers if numel(slots[other].shape) == size and bool(slots[other].parents) == made]


def _labels(values: HistoryValues) -> dict[Name, int]:
    """Return slots by layer without position, pass and output: one more op at the start must not shift the others."""
    return {
        (layer.short, number, output): values.of[op, output]
        for layer in values.history.facts.layers.all
        for number, op in enumerate(layer.ops, 1)
        for output in range(len(values.ops[op].tensors))
    }


def _module_results(values: HistoryValues) -> dict[Name, int]:
    """Return slots by module, call and place: labels count operations, of which a run without structure has none."""
    return {
        (run.call.address, run.call.call, place): values.of[result.parent, result.output]
        for run in values.history.trace.runs()
        for place, result in enumerate(run.outputs)
        if (result.parent, result.output) in values.of
    }
