"""Loop detection: an instruction repeated on its own earlier output is one layer."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from torcheer.history.layers.cycles import AncestorSearch, nodes_on_cycles
from torcheer.history.layers.initial_values import LoopInputs, initial_values
from torcheer.history.layers.module_places import UNNAMED, stored_names
from torcheer.records import Op

ROUNDS = 20  # limit; two or three are usual
WIDEST = 64  # ops of one instruction in each round of a loop, such as the levels of a pyramid
MANY = 256  # an op with more anchors than this is not compared by them
NEVER = sys.maxsize
_INITIAL = Op(-1, "initial", "input")  # represents an initial value of a loop that the model holds


def find_loops(ops: Sequence[Op], firsts: Sequence[int]) -> list[int]:
    """Return for each op the first op of its layer, given the first op at its place.

    Ops are chained when function, parameters, modules, instruction and the chains of all their inputs agree; a chain
    that feeds itself is a layer. After the first round of a loop the inputs may differ once, if they now come from
    within the loop and had an initial value before, but only if their source is itself repeated: so a relu between
    different convolutions stays different relus. Whether it is repeated is known at the end of a sweep, hence the
    rounds.
    """
    loops = _Loops(ops, firsts, initial_values(ops))
    if not loops.final:
        return list(firsts)
    chains: list[int] = []
    repeats = loops.likely_repeats()
    for _ in range(ROUNDS):
        before, chains = chains, loops.sweep(repeats)
        if chains == before:
            break
        repeats = _next_in_group(chains)
    return [first - loops.initials for first in loops.layers(chains)[loops.initials :]]


class _Loops:
    """The ops to chain, preceded by the initial values that the model holds."""

    def __init__(self, ops: Sequence[Op], firsts: Sequence[int], readings: Mapping[int, LoopInputs]) -> None:
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
        self.ancestors = AncestorSearch(self.parents)
        first_ops = [index for index, first in enumerate(self.firsts) if first == index]
        self.final = {self.keys[index]: index for index in first_ops if self.keys[index] is not None}
        self.repeats = _next_in_group(self.firsts)

    def likely_repeats(self) -> list[int]:
        """Guess the next repeat of each op: the same instruction with anchors that recur."""
        groups = [-1 - first if key is None else key for key, first in zip(self.keys, self.firsts)]
        repeats = _next_in_group(groups)
        origins = [(group, anchors) for group, anchors in zip(groups, self._anchors())]
        sizes = Counter(origins)
        repeated = [sizes[origin] > 1 for origin in origins]
        return [
            later if later != NEVER and (repeated[index] or repeated[later]) else NEVER
            for index, later in enumerate(repeats)
        ]

    def _anchors(self) -> list[frozenset[int]]:
        """Return for each op its nearest unique ancestors: with parameters, or never repeated."""
        anchors_of: list[frozenset[int]] = []
        for index, upstream in enumerate(self.parents):
            key = self.keys[index]
            if key is None:
                anchors = frozenset((self.firsts[index],))
            elif self.named[index] or not upstream:
                anchors = frozenset((-1 - key,))
            else:
                anchors = anchors_of[upstream[0]].union(*[anchors_of[parent] for parent in upstream[1:]])
                if len(anchors) > MANY:
                    anchors = frozenset((self.firsts[index],))
            anchors_of.append(anchors)
        return anchors_of

    def sweep(self, repeats: Sequence[int]) -> list[int]:
        """Return for each op the first of its chain; one pass in execution order suffices."""
        chains: list[int] = []
        inputs: list[Any] = []
        started: set[int] = set()  # chains past their initial values
        ends: dict[Any, int] = {}  # key and chains of the inputs -> the chain that continues with them
        starts: dict[Any, int] = {}  # key and initial values -> the last op that had them: inner loops restart
        last: dict[int, int] = {}  # key -> its last op
        for index, key in enumerate(self.keys):
            first = self.firsts[index]
            if first != index or key is None:
                chains.append(chains[first] if first != index else index)
                inputs.append(None)
                continue
            input_key = (key, *[chains[parent] for parent in self.parents[index]])
            chain = ends.get(input_key)
            if chain is None and input_key in starts and self._feeds(starts[input_key], index):
                chain = chains[starts[input_key]]
                starts[input_key] = index
            if chain is None:
                chain, before = index, last.get(key)
                if (
                    before is not None
                    and chains[before] not in started
                    and self._continues(before, index, chains, repeats)
                ):
                    chain = chains[before]
                    started.add(chain)
                    starts[inputs[before]] = before
                    del ends[inputs[before]]
                ends[input_key] = chain
            chains.append(chain)
            inputs.append(input_key)
            last[key] = index
        return chains

    def _continues(self, start: int, index: int, chains: Sequence[int], repeats: Sequence[int]) -> bool:
        """Whether `index` reads a loop-carried value where `start` read an initial value."""
        final = self.final[self.keys[index]]
        for initial, carried in zip(self.parents[start], self.parents[index]):
            if chains[initial] == chains[carried]:
                continue
            if carried < start or self.repeats[initial] < final or not self.ancestors.reaches(carried, start):
                return False
            # In a loop the next repeat of `carried` is computed from `index` in turn, in the same module call.
            after = repeats[carried]
            if after == NEVER or not self.ancestors.reaches(after, index) or not self._same_call(start, index, after):
                return False
        return True

    def _same_call(self, start: int, index: int, other: int) -> bool:
        """Whether `other` ran inside every module call that `start` and `index` share."""
        for start_call, index_call, other_call in zip_longest(*(self.ops[op].modules for op in (start, index, other))):
            if start_call != index_call or start_call is None:
                return True
            if other_call != start_call:
                return False
        return True

    def layers(self, chains: Sequence[int]) -> list[int]:
        """Return for each op the first of its layer: only chains that feed themselves stay."""
        edges = ((chains[parent], chain) for chain, parents in zip(chains, self.parents) for parent in parents)
        cyclic = nodes_on_cycles(edges, len(chains))
        members: dict[int, list[int]] = {}
        for index, chain in enumerate(chains):
            if self.firsts[index] == index and chain in cyclic:
                members.setdefault(chain, []).append(index)
        layers = list(range(len(chains)))
        for chain_ops in members.values():
            for layer in self._side_by_side(chain_ops):
                for index in layer:
                    layers[index] = layer[0]
        return [layers[first] for first in self.firsts]

    def _side_by_side(self, members: list[int]) -> list[list[int]]:
        """Split a chain into layers: in each round of the loop, the ops that feed their next repeat."""
        for period in range(1, min(len(members), WIDEST + 1)):
            if len(members) % period == 0 and self._feeds(members[0], members[period]):
                first, *columns = [members[place::period] for place in range(period)]
                return [first, *[column for column in columns if self._feeds(column[0], column[1])]]
        return []

    def _feeds(self, start: int, index: int) -> bool:
        return any(self.ancestors.reaches(parent, start) for parent in self.parents[index] if parent >= start)


def _next_in_group(groups: Sequence[int]) -> list[int]:
    """Return for each op the next one of its group, NEVER if there is none."""
    upcoming: dict[int, int] = {}
    next_ops = [NEVER] * len(groups)
    for index in range(len(groups) - 1, -1, -1):
        next_ops[index] = upcoming.get(groups[index], NEVER)
        upcoming[groups[index]] = index
    return next_ops


def _keys(ops: Sequence[Op], firsts: Sequence[int], readings: Mapping[int, LoopInputs]) -> list[Any]:
    """Return a key per op: what must agree before inputs are compared; None if unrepeated."""
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
