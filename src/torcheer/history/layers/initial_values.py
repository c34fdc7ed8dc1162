"""What loops begin from in the model: a buffer is read first, and computed values in its place later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torcheer.records import Op

_Where = tuple[int | str, ...]


class Reading(NamedTuple):
    """What an op takes, initial values of loops among what feeds it."""

    names: tuple[str, ...]  # what it always reads from the model
    wheres: tuple[_Where, ...]  # where it is fed, in an order that does not tell initial values from others
    parents: tuple[int, ...]  # by whom; an initial value is -1 or less


def initial_values(ops: Sequence[Op]) -> dict[int, Reading]:
    """The ops whose instruction reads the model at a place where it takes a computed value another time.

    A buffer that is only read at first is an initial value like one among the inputs, and no part of what the op is. A
    parameter stays part of it, and so does a buffer that the later values are written to.
    """
    reads: dict[Any, set[_Where]] = {}  # instruction -> where it reads the model and nothing computed
    for op in ops:
        if op.stored and op.site and (places := _only_read(op)):
            reads.setdefault((op.name, op.site), set()).update(places)
    if not reads:
        return {}
    computed: dict[Any, set[_Where]] = {}  # instruction -> at which of these places it takes a value another time
    unnamed: dict[Any, set[_Where]] = {}  # instruction -> at which of them this value is nothing of the model's
    for op in ops:
        if op.parents and (op.name, op.site) in reads:
            places = reads[op.name, op.site].intersection([edge.where for edge in op.parents])
            if places:
                computed.setdefault((op.name, op.site), set()).update(places)
                places -= {stored.where for stored in op.stored}
                unnamed.setdefault((op.name, op.site), set()).update(places)
    numbers: dict[str, int] = {}
    return {
        index: _reading(op, computed[op.name, op.site], unnamed[op.name, op.site], numbers)
        for index, op in enumerate(ops if computed else ())
        if (op.name, op.site) in computed
    }


def _only_read(op: Op) -> set[_Where]:
    """Where an op takes something from the model as it was before anything ran."""
    return {stored.where for stored in op.stored}.difference([edge.where for edge in op.parents])


def _reading(op: Op, computed: set[_Where], unnamed: set[_Where], numbers: dict[str, int]) -> Reading:
    names = [stored.name for stored in op.stored if stored.kind != "buffer" or stored.where not in unnamed]
    fed = [(edge.where, edge.parent) for edge in op.parents]
    initial = computed & _only_read(op)
    for stored in op.stored:
        if stored.where in initial:
            fed.append((stored.where, -1 - numbers.setdefault(stored.name, len(numbers))))
    fed.sort(key=lambda source: repr(source[0]))
    return Reading(tuple(names), *zip(*fed)) if fed else Reading(tuple(names), (), ())
