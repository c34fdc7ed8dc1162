"""Loops in code: what the same instruction did again, to its own earlier output, is the same layer."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from torcheer.history.layers.cycles import Descent, on_cycles
from torcheer.history.layers.initial_values import Reading, initial_values
from torcheer.history.layers.module_places import UNNAMED, stored_names
from torcheer.records import Op

ROUNDS = 20  # two or three are usual
WIDEST = 64  # ops of one instruction side by side in a loop, such as the levels of a pyramid
MANY = 256  # an op fed by more ops than this is not compared by what feeds it
NEVER = sys.maxsize
_INITIAL = Op(-1, "initial", "input")  # stands for what a loop begins from in the model


def find_loops(ops: Sequence[Op], firsts: Sequence[int]) -> list[int]:
    """For each op, the first op of its layer, given the first op at its place.

    Ops are chained when function, parameters, modules, instruction and the chains of all their inputs agree; a chain
    that feeds itself is a layer. After the first round of a loop the inputs may differ once, where they now come from
    within the loop and had an initial value before, but only if what they come from is itself repeated: so a relu
    between different convolutions stays different relus. Whether it is repeated is known at the end of a sweep, hence
    the rounds.
    """
    loops = _Loops(ops, firsts, initial_values(ops))
    if not loops.final:
        return list(firsts)
    chains: list[int] = []
    again = loops.likely_again()
    for _ in range(ROUNDS):
        before, chains = chains, loops.sweep(again)
        if chains == before:
            break
        again = _next_alike(chains)
    return [first - loops.initials for first in loops.carried(chains)[loops.initials :]]


class _Loops:
    """What is known of the ops before they are chained; initial values that the model holds stand before them."""

    def __init__(self, ops: Sequence[Op], firsts: Sequence[int], readings: Mapping[int, Reading]) -> None:
        self.initials = shift = -min([0, *[parent for reading in readings.values() for parent in reading.parents]])
        self.ops = [_INITIAL] * shift + list(ops)
        self.firsts = [*range(shift), *[first + shift for first in firsts]]
        self.keys = [None] * shift + _keys(ops, firsts, readings)
        self.parents: list[tuple[int, ...]] = [()] * shift
        self.parents += [tuple([edge.parent + shift for edge in op.parents]) for op in ops]
        self.named = [bool(op.stored) for op in self.ops]
        for index, reading in readings.items():
            self.parents[index + shift] = tuple([parent + shift for parent in reading.parents])
            self.named[index + shift] = bool(reading.names)
        self.descent = Descent(self.parents)
        own = [index for index, first in enumerate(self.firsts) if first == index]
        self.final = {self.keys[index]: index for index in own if self.keys[index] is not None}
        self.again = _next_alike(self.firsts)

    def likely_again(self) -> list[int]:
        """A first guess at what repeats each op: the same instruction, fed by what it was fed by some other time."""
        groups = [-1 - first if key is None else key for key, first in zip(self.keys, self.firsts)]
        again = _next_alike(groups)
        fed = [(group, anchors) for group, anchors in zip(groups, self._anchors())]
        sizes = Counter(fed)
        repeated = [sizes[each] > 1 for each in fed]
        return [
            later if later != NEVER and (repeated[index] or repeated[later]) else NEVER
            for index, later in enumerate(again)
        ]

    def _anchors(self) -> list[frozenset[int]]:
        """For each op, the nearest ops upstream that are one of a kind: with parameters, or never repeated."""
        found: list[frozenset[int]] = []
        for index, upstream in enumerate(self.parents):
            key = self.keys[index]
            if key is None:
                anchors = frozenset((self.firsts[index],))
            elif self.named[index] or not upstream:
                anchors = frozenset((-1 - key,))
            else:
                anchors = found[upstream[0]].union(*[found[parent] for parent in upstream[1:]])
                if len(anchors) > MANY:
                    anchors = frozenset((self.firsts[index],))
            found.append(anchors)
        return found

    def sweep(self, again: Sequence[int]) -> list[int]:
        """For each op, the first of its chain. Parents run before children: one pass in order sees all it needs."""
        chains: list[int] = []
        inputs: list[Any] = []
        started: set[int] = set()  # chains that are past their initial values
        ends: dict[Any, int] = {}  # key and chains of the inputs -> the chain that goes on from there
        starts: dict[Any, int] = {}  # key and initial values -> who last had them: inner loops start again
        last: dict[int, int] = {}  # key -> its last op
        for index, key in enumerate(self.keys):
            first = self.firsts[index]
            if first != index or key is None:
                chains.append(chains[first] if first != index else index)
                inputs.append(None)
                continue
            here = (key, *[chains[parent] for parent in self.parents[index]])
            chain = ends.get(here)
            if chain is None and here in starts and self._feeds(starts[here], index):
                chain = chains[starts[here]]
                starts[here] = index
            if chain is None:
                chain, before = index, last.get(key)
                if before is not None and chains[before] not in started and self._goes_on(before, index, chains, again):
                    chain = chains[before]
                    started.add(chain)
                    starts[inputs[before]] = before
                    del ends[inputs[before]]
                ends[here] = chain
            chains.append(chain)
            inputs.append(here)
            last[key] = index
        return chains

    def _goes_on(self, start: int, index: int, chains: Sequence[int], again: Sequence[int]) -> bool:
        """Whether `index` takes from the loop what `start` had as its initial value."""
        final = self.final[self.keys[index]]
        for initial, carried in zip(self.parents[start], self.parents[index]):
            if chains[initial] == chains[carried]:
                continue
            if carried < start or self.again[initial] < final or not self.descent.reaches(carried, start):
                return False
            after = again[carried]  # in a loop the next of its kind comes from `index` in turn, in the same module call
            if after == NEVER or not self.descent.reaches(after, index) or not self._same_call(start, index, after):
                return False
        return True

    def _same_call(self, start: int, index: int, other: int) -> bool:
        """Whether `other` ran inside every module call that both `start` and `index` ran inside."""
        for mine, yours, theirs in zip_longest(*(self.ops[op].modules for op in (start, index, other))):
            if mine != yours or mine is None:
                return True
            if theirs != mine:
                return False
        return True

    def carried(self, chains: Sequence[int]) -> list[int]:
        """The layers: chains whose later ops are computed from earlier ones; other chains are taken apart again."""
        edges = ((chains[parent], chain) for chain, some in zip(chains, self.parents) for parent in some)
        cyclic = on_cycles(edges, len(chains))
        members: dict[int, list[int]] = {}
        for index, chain in enumerate(chains):
            if self.firsts[index] == index and chain in cyclic:
                members.setdefault(chain, []).append(index)
        layers = list(range(len(chains)))
        for some in members.values():
            for layer in self._side_by_side(some):
                for index in layer:
                    layers[index] = layer[0]
        return [layers[first] for first in self.firsts]

    def _side_by_side(self, members: list[int]) -> list[list[int]]:
        """A chain's layers: of the ops side by side in each round of the loop, those that lead back to themselves."""
        for period in range(1, min(len(members), WIDEST + 1)):
            if len(members) % period == 0 and self._feeds(members[0], members[period]):
                first, *others = [members[place::period] for place in range(period)]
                return [first, *[other for other in others if self._feeds(other[0], other[1])]]
        return []

    def _feeds(self, start: int, index: int) -> bool:
        return any(self.descent.reaches(parent, start) for parent in self.parents[index] if parent >= start)


def _next_alike(groups: Sequence[int]) -> list[int]:
    """For each op, the next one of its group."""
    coming: dict[int, int] = {}
    found = [NEVER] * len(groups)
    for index in range(len(groups) - 1, -1, -1):
        found[index] = coming.get(groups[index], NEVER)
        coming[groups[index]] = index
    return found


def _keys(ops: Sequence[Op], firsts: Sequence[int], readings: Mapping[int, Reading]) -> list[Any]:
    """What must agree before inputs are compared, as small numbers; None for an op that repeats nothing."""
    numbers: dict[Any, int] = {}
    keys: list[int | None] = []
    for index, op in enumerate(ops):
        first = firsts[index]
        if first != index:
            keys.append(keys[first])
            continue
        reading = readings.get(index)
        stored = stored_names(op) if reading is None else reading.names
        if op.kind in ("input", "output", "unseen") or not op.site or UNNAMED in stored:
            keys.append(None)
            continue
        addresses = tuple([call.address for call in op.modules])
        wheres = tuple([edge.where for edge in op.parents]) if reading is None else reading.wheres
        key = (op.name, op.site, stored, addresses, wheres)
        keys.append(numbers.setdefault(key, len(numbers)))
    sizes = Counter(keys)
    return [None if sizes[key] == 1 else key for key in keys]
