"""Rolled loops: what hangs on the passes of a layer rolls with it.

A loop's condition, `x[:, t]`, random draws, a loss in every step feed no later step, so each is a layer of its own in a
history, and stays one. Where loops are shown rolled, they are one item with as many passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from torcheer.history.derived_facts import HistoryFacts
from torcheer.history.layers.module_places import UNNAMED, stored_names
from torcheer.records import Op

_Inputs = tuple[tuple[tuple[int | str, ...], int], ...]  # argument and group
LOOKS = 50  # limit of how often an operation is compared on average; two or three are usual


def rolled_passes(facts: HistoryFacts) -> list[tuple[int, ...]]:
    """Return the operations of each item of a rolled view, by first appearance."""
    layers = facts.layers
    if len(layers.all) == len(facts.ops):
        return [tuple(layer.ops) for layer in layers.all]
    first = [layers.all[layer].ops[0] for layer in layers.of]  # op -> the first of its item
    repeated = {layer.ops[0] for layer in layers.all if len(layer.ops) > 1}
    for members in _Groups(facts).hanging():
        repeated.add(members[0])
        for index in members:
            first[index] = members[0]
    _join_last_passes(facts.ops, first, repeated)
    items: dict[int, list[int]] = {}
    for index, start in enumerate(first):
        items.setdefault(start, []).append(index)
    return [tuple(members) for members in items.values()]


def _join_last_passes(ops: Sequence[Op], first: list[int], repeated: set[int]) -> None:
    """Join an operation to the item that did the same before, with the same inputs: often a loop's last round."""
    again = {(ops[index].name, ops[index].site) for index in repeated}
    again &= {(op.name, op.site) for op in ops if first[op.index] not in repeated}
    done: dict[Any, int] = {}
    for op in ops if again else ():
        if (op.name, op.site) in again and (key := _key(op)):
            inputs = (key, op.site[2], *[first[edge.parent] for edge in op.parents])
            if first[op.index] in repeated:
                done.setdefault(inputs, first[op.index])
            else:
                first[op.index] = done.get(inputs, op.index)


class _Groups:
    """Groups of operations that may be passes of one item: at first one per instruction and module."""

    def __init__(self, facts: HistoryFacts) -> None:
        self.facts, self.ops = facts, facts.ops
        self.layer_of, self.layers = facts.layers.of, facts.layers.all
        self.group_of = list(self.layer_of)  # op -> its group; numbers below len(layers) are layers
        self.members: dict[int, list[int]] = {}
        lines: dict[Any, dict[int, list[int]]] = {}  # by the offset of the instruction in its function
        for layer in self.layers:
            if len(layer.ops) == 1 and (key := _key(op := self.ops[layer.ops[0]])):
                lines.setdefault(key, {}).setdefault(op.site[2], []).append(op.index)
        for instructions in lines.values():
            for members in _with_first_conditions(instructions):
                if len(members) > 1:
                    self._add(members)

    def _add(self, members: list[int]) -> int:
        group = len(self.layers) + len(self.members)
        self.members[group] = members
        for index in members:
            self.group_of[index] = group
        return group

    def _refine(self) -> None:
        """Split the groups until the inputs of all members agree: the same value, or passes of the same item."""
        waiting = dict.fromkeys(self.members)
        budget = LOOKS * len(self.ops)
        while waiting and budget > 0:
            group, _ = waiting.popitem()
            members = self.members[group]
            budget -= len(members)
            parts: dict[_Inputs, list[int]] = {}
            for index in members:
                parts.setdefault(self._inputs(index), []).append(index)
            if len(parts) == 1:
                continue
            main = max(parts, key=lambda inputs: len(parts[inputs]))
            kept = self._with_ends([members[0], members[-1]], parts, main)
            self.members[group] = kept if len(kept) > 1 else []
            left = set(members).difference(self.members[group])
            for index in left:
                self.group_of[index] = self.layer_of[index]
            for part in parts.values():
                if part is not parts[main] and len(rest := [index for index in part if index in left]) > 1:
                    waiting[self._add(rest)] = None
            moved = left if self.members[group] else set(members)
            readers = {self.group_of[child] for index in moved for child in self.facts.children[index]}
            waiting.update(dict.fromkeys(sorted(readers.intersection(self.members))))
        if waiting:
            self.members.clear()

    def _inputs(self, index: int) -> _Inputs:
        """Return the groups that an operation reads, and at which argument; those of a list once."""
        edges = self.ops[index].parents
        return tuple(dict.fromkeys([(_argument(edge.where), self.group_of[edge.parent]) for edge in edges]))

    def _with_ends(self, ends: list[int], parts: dict[_Inputs, list[int]], main: _Inputs) -> list[int]:
        """Return the main part, with the first and last operation if only they read a loop's initial or final value."""
        kept = set(parts[main])
        carried = {argument for argument, group in main if self._repeats(group)}
        for index in ends if len(kept) > 1 else ():
            inputs = self._inputs(index)
            if len(parts[inputs]) == 1 and all(own in main or own[0] in carried for own in inputs):
                kept.add(index)
        return sorted(kept)

    def _repeats(self, group: int) -> bool:
        return len(self.members[group] if group in self.members else self.layers[group].ops) > 1

    def hanging(self) -> Iterable[tuple[int, ...]]:
        """Yield the groups that reach the passes of a layer, each split into items of one operation a pass."""
        if not self.members:
            return
        self._refine()
        passes = {number: len(layer.ops) for number, layer in enumerate(self.layers) if len(layer.ops) > 1}
        reached = sorted(passes, key=passes.__getitem__)
        while reached:
            group = reached.pop()
            members = self.members[group] if group in self.members else self.layers[group].ops
            for beside in self._beside(members):
                if beside not in passes:
                    passes[beside] = passes[group]
                    reached.append(beside)
        for group, members in self.members.items():
            if len(members) > 1 and group in passes:
                a_pass = len(members) // passes[group] if len(members) % passes[group] == 0 else 1
                yield from (tuple(members[place::a_pass]) for place in range(a_pass))

    def _beside(self, members: Sequence[int]) -> list[int]:
        """Return the groups of which at least two operations read these or are read by them."""
        near = {child for index in members for child in self.facts.children[index]}
        near.update(edge.parent for index in members for edge in self.ops[index].parents)
        counts = Counter(self.group_of[index] for index in near)
        return [group for group, count in counts.items() if count > 1 and group in self.members]


def _with_first_conditions(instructions: dict[int, list[int]]) -> Iterable[list[int]]:
    """Yield the operations of each instruction of a line.

    Python writes the condition of a `while` twice, before the loop and at its end: the first time joins the others.
    """
    in_order = [members for _, members in sorted(instructions.items())]
    once = [members for members in in_order if len(members) == 1]
    often = [members for members in in_order if len(members) > 1]
    if len(once) == len(often) and all(first < members for first, members in zip(once, often)):
        return [first + members for first, members in zip(once, often)]
    return in_order


def _key(op: Op) -> tuple[Any, ...] | None:
    """Return what passes of one item have in common but the instruction; None for an operation that is none."""
    stored = stored_names(op)
    if op.kind != "op" or not op.site or UNNAMED in stored:
        return None
    addresses = tuple([call.address for call in op.modules])
    arguments = tuple(dict.fromkeys([_argument(edge.where) for edge in op.parents]))
    line = (op.source.file, op.source.line) if op.source else ()
    return (op.name, op.site[:2], line, stored, addresses, arguments)


def _argument(where: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return an argument without the position in its list: a list may grow from pass to pass."""
    return where if len(where) < 2 else (*where[:-1], "")
