"""Where two histories part: the operations whose inputs agree and whose results do not."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from torcheer.history.alignment.counterparts import find_ends
from torcheer.history.alignment.difference_hints import describe_difference, turned
from torcheer.history.alignment.pairing import pair_by_position, pair_values
from torcheer.history.alignment.rounding import TF32, UNITS, rounding_unit
from torcheer.history.alignment.side import Side
from torcheer.history.alignment.value_samples import HistoryValues, numel
from torcheer.history.numbers.unwritten_memory import Places
from torcheer.history.op_views import OpList, OpView
from torcheer.records import NO_STRUCTURE

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory


@dataclass(frozen=True, slots=True)
class AgreeingInput:
    """A value that the diverging operations start from, and its counterpart."""

    label: str  # in the first history
    other: str  # in the second
    error: float  # relative
    order: tuple[int, ...] = ()  # exchange of the first's axes under which they agree


@dataclass(frozen=True, slots=True)
class Divergence:
    """Operations whose inputs agree and whose results do not."""

    op: OpView | None  # of the first history; None if it has no operation there
    other_op: OpView | None  # of the second history
    ops: OpList  # all operations between the inputs and `op`, in order
    other_ops: OpList
    inputs: tuple[AgreeingInput, ...]
    error: float  # relative difference of the results; inf if they cannot be compared
    expected: float  # what rounding explains; 0 for integers
    hints: tuple[str, ...] = ()  # what the difference looks like, each checked


class Alignment:
    """Two histories, value by value."""

    def __init__(
        self, first: ModelHistory, second: ModelHistory, unwritten: tuple[Places, Places], *, same_program: bool
    ) -> None:
        values, others = HistoryValues(first, unwritten[0]), HistoryValues(second, unwritten[1])
        self.unit = rounding_unit(values, others)
        if same_program:
            pairs = back = pair_by_position(values, others)
        else:
            pairs, back = pair_values(values, others), pair_values(others, values)
        self.first = Side(values, pairs, others, back, self.unit)
        self.second = Side(others, back, values, pairs, self.unit)

    @property
    def precision(self) -> str:
        """The type whose rounding is allowed for."""
        present = {
            slot.dtype.removeprefix("torch.") for side in (self.first, self.second) for slot in side.values.slots
        }
        names = {unit: name for name, unit in reversed(UNITS.items()) if name in present}
        return names.get(self.unit, "TF32" if self.unit == TF32 else "float32")

    def unmatched(self, side: Side, matched: set[int]) -> tuple[str, ...]:
        """Return the labels of operations of one history without a counterpart, in order of execution."""
        values = side.values
        known = {values.slots[index].op for index in matched}
        known |= {slot.op for index, slot in enumerate(values.slots) if side.verdicts.good[index]}
        return tuple(values.history.facts.layers.label(op.index) for op in values.ops if op.index not in known)

    def divergences(self) -> list[Divergence]:
        """Return where the histories part, in order of execution; each is independent of those before."""
        divergences: list[Divergence] = []
        seen: set[int] = set()
        for start in self.second.starts:
            if start in seen or self._is_unjudged(start, seen):
                continue
            index, other = self._ends(start)
            region = self.second.region(other)
            if not region & seen:
                divergences.append(self._describe(index, other))
            seen |= region | set(self.second.downstream({start, *region}))
        partial = NO_STRUCTURE in self.second.values.history.info.notes  # it says nothing of what it leaves out
        further = [start for start in self.first.starts if self.first.leads[start] and not partial]
        return divergences or [self._describe(start, None) for start in further[:1]]

    def _is_unjudged(self, start: int, seen: set[int]) -> bool:
        """Whether a value without a counterpart meets nothing but values that are wrong for another reason."""
        pair, children = self.second.pairs.get(start), self.second.values.children[start]
        has_counterpart = pair is not None and self.second.is_mutual(start, pair)
        return not has_counterpart and bool(children) and seen.issuperset(children)

    def _ends(self, start: int) -> tuple[int | None, int]:
        """Return the ends of what begins at `start`, or of something smaller that leads to the same result."""
        index, other, _ = find_ends(self.first, self.second, start)
        region = self.second.region(other)
        smallest = len(region), index, other
        for inner in self.second.starts:
            if inner != start and inner in region:
                a, b, sure = find_ends(self.first, self.second, inner)
                if sure and self.second.region(b) < region:
                    smallest = min(smallest, (len(self.second.region(b)), a, b), key=lambda ends: ends[0])
        return smallest[1], smallest[2]

    def _describe(self, index: int | None, other: int | None) -> Divergence:
        first, second = self.first, self.second
        inputs = [
            AgreeingInput(
                first.values.label(second.pairs[source].partner),
                second.values.label(source),
                second.pairs[source].error,
                second.pairs[source].order,
            )
            for source in (second.verdicts.sources[other] if other is not None else ())
        ]
        return Divergence(
            op=_view(first, index),
            other_op=_view(second, other),
            ops=_ops(first, index),
            other_ops=_ops(second, other),
            inputs=tuple({item.label: item for item in reversed(inputs)}.values())[::-1],
            error=self._error(index, other),
            expected=self._expected(index, other),
            hints=tuple(describe_difference(first, index, second, other)),
        )

    def _expected(self, index: int | None, other: int | None) -> float:
        if other is None:
            return inf
        slots = [
            values.slots[n] for values, n in ((self.first.values, index), (self.second.values, other)) if n is not None
        ]
        rounds = any("float" in slot.dtype or "complex" in slot.dtype for slot in slots)
        return self.second.verdicts.expected[other] if rounds else 0.0

    def _error(self, index: int | None, other: int | None) -> float:
        if index is None or other is None:
            return inf
        a, b = self.first.values, self.second.values
        if not a.slots[index].known or numel(a.slots[index].shape) != numel(b.slots[other].shape):
            return inf
        return turned(a.array(index), b.array(other))[1]


def _view(side: Side, index: int | None) -> OpView | None:
    return side.values.history[side.values.slots[index].op] if index is not None else None


def _ops(side: Side, index: int | None) -> OpList:
    region = side.region(index) if index is not None else set()
    return side.values.history.pick(sorted({side.values.slots[slot].op for slot in region}))
