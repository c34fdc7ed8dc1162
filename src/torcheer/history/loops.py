"""Loops in code: what the same instruction did again, to its own earlier output, is the same layer."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from torcheer.history.graph import Descent, on_cycles
from torcheer.history.places import UNNAMED, stored_names
from torcheer.records import Op

ROUNDS = 20  # two or three are usual
NEVER = sys.maxsize


def find_loops(ops: Sequence[Op], firsts: Sequence[int]) -> list[int]:
    """For each op, the first op of its layer, given the first op at its place.

    Ops are chained when function, parameters, modules, instruction and the chains of all their inputs agree; a chain
    that feeds itself is a layer. The second op of a chain may differ from the first in inputs that come from within
    the loop, where the first got their initial value, but only if what they come from is itself repeated: so a relu
    between different convolutions stays different relus. Whether it is repeated is known at the end of a sweep, hence
    the rounds.
    """
    loops = _Loops(ops, firsts)
    if not loops.final:
        return list(firsts)
    chains: list[int] = []
    guess = [-1 - first if key is None else key for key, first in zip(loops.keys, firsts)]
    for _ in range(ROUNDS):
        before, chains = chains, loops.sweep(guess)
        if chains == before:
            break
        guess = chains
    return loops.carried(chains)


class _Loops:
    """What is known of the ops before they are chained."""

    def __init__(self, ops: Sequence[Op], firsts: Sequence[int]) -> None:
        self.ops = ops
        self.firsts = firsts
        self.keys = _keys(ops, firsts)
        self.parents = [tuple([edge.parent for edge in op.parents]) for op in ops]
        self.descent = Descent(self.parents)
        self.final = {key: index for index, key in enumerate(self.keys) if key is not None and firsts[index] == index}
        self.again = _next_alike(firsts)

    def sweep(self, guess: Sequence[int]) -> list[int]:
        """For each op, the first of its chain. Parents run before children: one pass in order sees all it needs."""
        again = _next_alike(guess)
        chains: list[int] = []
        inputs: list[Any] = []
        lengths: Counter[int] = Counter()
        ends: dict[Any, int] = {}  # key and chains of the inputs -> the chain that goes on from there
        starts: dict[
            Any, int
        ] = {}  # the same for initial values: an inner loop starts again in each round of the outer
        last: dict[int, int] = {}  # key, as ~key, or chain -> its last op
        for index, key in enumerate(self.keys):
            first = self.firsts[index]
            if first != index or key is None:
                chains.append(chains[first] if first != index else index)
                inputs.append(None)
                continue
            here = (key, *[chains[parent] for parent in self.parents[index]])
            chain = ends.get(here)
            if chain is None and here in starts and self._feeds(last[starts[here]], index):
                chain = starts[here]
            if chain is None:
                chain, before = index, last.get(~key)
                if before is not None and lengths[before] == 1 and self._goes_on(before, index, chains, again):
                    chain = before
                    starts[inputs[before]] = ends.pop(inputs[before])
                ends[here] = chain
            chains.append(chain)
            inputs.append(here)
            lengths[chain] += 1
            last[~key] = last[chain] = index
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
        """Keep the chains whose later ops are computed from earlier ones; take the others apart again."""
        edges = ((chains[parent], chain) for chain, some in zip(chains, self.parents) for parent in some)
        cyclic = on_cycles(edges, len(chains))
        seconds: dict[int, int] = {}
        for index, chain in enumerate(chains):
            if self.firsts[index] == index != chain:
                seconds.setdefault(chain, index)
        kept = {chain for chain, second in seconds.items() if chain in cyclic and self._feeds(chain, second)}
        return [chain if chain in kept else self.firsts[index] for index, chain in enumerate(chains)]

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


def _keys(ops: Sequence[Op], firsts: Sequence[int]) -> list[Any]:
    """What must agree before inputs are compared, as small numbers; None for an op that repeats nothing."""
    numbers: dict[Any, int] = {}
    keys: list[int | None] = []
    for index, op in enumerate(ops):
        first = firsts[index]
        if first != index:
            keys.append(keys[first])
            continue
        stored = stored_names(op)
        if op.kind in ("input", "output", "unseen") or not op.site or UNNAMED in stored:
            keys.append(None)
            continue
        addresses = tuple([call.address for call in op.modules])
        key = (op.name, op.site, stored, addresses, tuple([edge.where for edge in op.parents]))
        keys.append(numbers.setdefault(key, len(numbers)))
    sizes = Counter(keys)
    return [None if sizes[key] == 1 else key for key in keys]
