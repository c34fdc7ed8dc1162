"""Initial values of loops: buffers read in the first round, computed values later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torcheer.records import Op

_Where = tuple[int | str, ...]


class LoopInputs(NamedTuple):
    """The inputs of an op, with initial values of loops counted as parents."""

    names: tuple[str, ...]  # parameters and buffers it reads each time
    wheres: tuple[_Where, ...]  # positions of its parents, in an order independent of which are initial values
    parents: tuple[int, ...]  # ops, or -1 and less for initial values


def initial_values(ops: Sequence[Op]) -> dict[int, LoopInputs]:
    """Return the inputs of ops that read a buffer where they read a computed value another time.

    A buffer that is only read at first is an initial value, like a model input, and not part of the op's identity. A
    parameter stays part of it, and so does a buffer that the later values are written to.
    """
    reads: dict[Any, set[_Where]] = {}  # instruction -> positions where it reads only parameters or buffers
    for op in ops:
        if op.stored and op.site and (places := _only_read(op)):
            reads.setdefault((op.name, op.site), set()).update(places)
    if not reads:
        return {}
    computed: dict[Any, set[_Where]] = {}  # instruction -> those positions where it reads a computed value another time
    unnamed: dict[Any, set[_Where]] = {}  # instruction -> those of them where that value is not stored in the model
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
    """Return the positions where an op reads a parameter or buffer as it was before the run."""
    return {stored.where for stored in op.stored}.difference([edge.where for edge in op.parents])


def _reading(op: Op, computed: set[_Where], unnamed: set[_Where], numbers: dict[str, int]) -> LoopInputs:
    names = [stored.name for stored in op.stored if stored.kind != "buffer" or stored.where not in unnamed]
    sources = [(edge.where, edge.parent) for edge in op.parents]
    initial = computed & _only_read(op)
    for stored in op.stored:
        if stored.where in initial:
            sources.append((stored.where, -1 - numbers.setdefault(stored.name, len(numbers))))
    sources.sort(key=lambda source: repr(source[0]))
    return LoopInputs(tuple(names), *zip(*sources)) if sources else LoopInputs(tuple(names), (), ())
