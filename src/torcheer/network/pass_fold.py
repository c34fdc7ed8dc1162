"""The operations of a pass as leaves of its fold, and what makes two of them the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from torcheer.history.derived_facts import HistoryFacts
from torcheer.network.fold import Fold, Net, add_badges
from torcheer.network.op_places import Path, Places
from torcheer.records import BESIDE, KERNEL, ModuleCall, Op, Stored, garbage_collection_off

PARENTS = attrgetter("parents")


class OpForms:
    """Numbers of operations: the same for the same function, arguments, weights and results."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, op: Op, kind: str = "") -> int:
        """Return the number of an operation; `kind` is the type of the module that has no other operation."""
        outputs = op.outputs
        held: tuple[object, ...] = ()
        if len(outputs) == 1:  # the common case
            results: object = (outputs[0].shape, outputs[0].dtype)
        else:
            results = tuple([(meta.shape, meta.dtype) for meta in outputs])
        if op.stored:
            held = tuple([(entry.kind, entry.shape, entry.trainable, entry.where) for entry in shown_parameters(op)])
        arguments = tuple([edge.where for edge in op.parents]) if len(op.parents) > 1 else ()
        key: object = (op.name, op.settings, results, held, kind, arguments)
        try:
            return self._numbers.setdefault(key, len(self._numbers))
        except (TypeError, NotImplementedError):  # a slice or a packed weight among the arguments
            return self._numbers.setdefault(repr(key), len(self._numbers))


def shown_parameters(op: Op) -> tuple[Stored, ...]:
    """Return the parameters and buffers to show.

    Those of a fused kernel are shown in its inside, where it is shown.
    """
    return op.stored if op.note != KERNEL else ()


@dataclass(slots=True, eq=False)
class OpLeaf:
    """One operation, or all passes of one in a rolled view."""

    number: int
    name: str  # of a module that has no other operation, relative to the boxes around it; "" for a function
    ops: tuple[int, ...]
    path: Path
    call: ModuleCall | None  # the module that has no other operation
    forms: tuple[int, ...]  # of its passes, each once
    marks: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    stored: tuple[Stored, ...] = ()
    parents: list[tuple[Net, str]] = field(default_factory=list)
    badge: str = ""
    at: int = 0
    joins: bool = False

    @property
    def identity(self) -> object:
        """What it does, and with which weights if others use them too."""
        if len(self.ops) == 1 and not (self.marks or self.badge):
            return self.forms[0]
        names = [entry.name for entry in self.stored] if self.badge else []
        return (len(self.ops), *self.forms, *self.marks, *names)


@garbage_collection_off()
def fold_pass(facts: HistoryFacts, *, rolled: bool = False) -> Fold[OpLeaf]:
    """Fold a pass; of a backward pass the operations without the leaves.

    With `rolled`, what repeats in a loop is one leaf, and calls that are passes of each other are one box.
    """
    places, forms = Places(facts, rolled=rolled), OpForms()
    leaf_of: dict[int, int] = {}
    leaves: list[OpLeaf] = []
    ops, is_backward = facts.ops, facts.backward
    for members in places.passes:
        op = ops[members[0]]
        if (is_backward and op.kind != "op") or places.is_counter(op):
            continue
        place, number = places.of(op), len(leaves)
        numbers: tuple[int, ...] = (forms.number(op, place.kind),)
        if len(members) > 1:
            numbers = tuple(dict.fromkeys([forms.number(ops[index], place.kind) for index in members]))
        shapes = tuple([meta.shape for meta in op.outputs])
        leaf = OpLeaf(number, place.name, members, place.path, place.leaf, numbers, _marks(op), shapes, op.stored)
        leaf.joins = places.joins(op)
        leaves.append(leaf)
        for index in members:
            leaf_of[ops[index].index] = number
    for leaf in leaves:
        if len(leaf.ops) == 1 and not leaf.marks and len(parents := ops[leaf.ops[0]].parents) == 1:  # the common case
            if (start := leaf_of.get(parents[0].parent)) is not None:
                leaf.parents = [((start, parents[0].output), "")]
            continue
        outputs: dict[object, int] = {}  # of `unbind`, each pass may read another
        nets: dict[Net, None] = {}
        parents_of = places.read_by if "output" in leaf.marks else PARENTS
        for edge in [edge for n in leaf.ops for edge in parents_of(ops[n]) if edge.parent in leaf_of]:
            source = leaf_of[edge.parent]
            argument = (source, edge.where, edge.output if leaf.joins else -1)
            nets[source, outputs.setdefault(argument, edge.output)] = None
        leaf.parents = [(net, "") for net in nets]
    add_badges(leaves)
    return Fold(leaves, places.times)


def _marks(op: Op) -> tuple[str, ...]:
    if op.kind == "op" and not op.edited and op.note != BESIDE:  # the common case
        return ()
    marks = (op.edited, op.kind if op.kind != "op" else "", op.note if op.note == BESIDE else "")
    return tuple(filter(None, marks))
