"""The values of two histories that belong together, one match for each value of the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torcheer.history.alignment.orders import REORDERED, Axes, arranged

if TYPE_CHECKING:
    from torcheer.history.alignment.divergence import Alignment
    from torcheer.history.alignment.value_samples import Array


@dataclass(frozen=True, slots=True)
class Match:
    """A value of the first history and its counterpart in the second."""

    index: int  # slots
    other: int
    op: int
    other_op: int
    output: int
    other_output: int
    label: str
    other_label: str
    order: Axes
    error: float
    expected: float
    agrees: bool
    arrays: tuple[Array, Array] | None  # flat and in the same order, if their axes are exchanged


def value_rows(alignment: Alignment) -> dict[int, Match]:
    """Return the match of each value of the first history that has one, in order of execution."""
    return {
        index: _match(alignment, index)
        for index in range(len(alignment.first.values.slots))
        if _is_match(alignment, index)
    }


def _is_match(alignment: Alignment, index: int) -> bool:
    """Whether a counterpart is one: it agrees, or nothing is nearer to either of them."""
    first = alignment.first
    pair = first.pairs.get(index)
    if pair is None or pair.order == REORDERED:
        return False
    if first.verdicts.good[index] or pair.by != "value":
        return True
    return index in first.wrong and first.is_mutual(index, pair)


def _match(alignment: Alignment, index: int) -> Match:
    first, second = alignment.first, alignment.second
    pair = first.pairs[index]
    slot, other = first.values.slots[index], second.values.slots[pair.partner]
    arrays = None
    if slot.known and other.known:
        array = first.values.array(index)
        arrays = array, second.values.array(pair.partner)
        if array.size == arrays[1].size:
            arrays = array.reshape(-1), arranged(arrays[1], pair.order)
    return Match(
        index, pair.partner, slot.op, other.op, slot.output, other.output,
        first.values.label(index), second.values.label(pair.partner),
        pair.order, pair.error, first.verdicts.expected[index],
        first.verdicts.good[index] or first.fine[index] or not slot.known or not other.known, arrays,
    )  # fmt: skip
