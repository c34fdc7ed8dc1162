"""Comparison of two runs: value by value, and where they part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from torcheer.errors import ValueUnavailable
from torcheer.history.alignment.array_difference import UNWRITTEN, Difference, difference
from torcheer.history.alignment.divergence import Alignment, Divergence
from torcheer.history.alignment.matches import Match, value_rows
from torcheer.history.alignment.value_samples import numel, value_label
from torcheer.history.numbers.unwritten_memory import (
    Places,
    Unwritten,
    unwritten_in_either,
    unwritten_memory,
    written_numbers,
)
from torcheer.history.op_table import Columns, to_pandas
from torcheer.history.program_structure import structural_hash
from torcheer.history.text.comparison_text import describe
from torcheer.history.value_arrays import bits_equal, to_numpy
from torcheer.records import COMPILED_AS_EAGER
from torcheer.terminal import first_names
from torcheer.terminal.streams import encodable

if TYPE_CHECKING:
    import pandas

    from torcheer.history.model_history import ModelHistory


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences between two runs; true if every value is equal bit for bit.

    What uninitialised memory holds is no difference: `torch.empty` returns other numbers each time.
    """

    rows: tuple[Difference, ...]
    missing: tuple[str, ...]  # only in the first run
    extra: tuple[str, ...]  # only in the second
    same_structure: bool
    divergences: tuple[Divergence, ...] = ()  # where inputs agree and results do not, in order of execution
    precision: str = ""  # the type whose rounding is allowed for, "float32"; "" if all values are equal
    notes: tuple[tuple[str, str], ...] = ()  # what the "first", the "second" or both say of how they were recorded
    histories: tuple[ModelHistory, ...] = field(default=(), compare=False)  # the two; `tl.show` shows them

    def __bool__(self) -> bool:
        return not self.missing and not self.extra and all(row.status in _SAME for row in self.rows)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.rows)

    @property
    def first_difference(self) -> str | None:
        """Label of the first operation whose values differ, be it in the last bit."""
        return next((row.label for row in self.rows if row.status not in (*_SAME, "not saved")), None)

    @property
    def divergence(self) -> Divergence | None:
        """The first operation whose inputs agree and whose result does not; None if all is within rounding."""
        return self.divergences[0] if self.divergences else None

    @property
    def agrees(self) -> bool:
        """Whether both runs compute the same, up to rounding; False if no value is saved in both."""
        return not self.divergences and self.found_values

    @property
    def found_values(self) -> bool:
        """Whether any value could be compared, or there is none in either run."""
        compared = any(row.status not in ("not saved", UNWRITTEN) for row in self.rows)
        return compared or not (self.rows or self.missing or self.extra)

    @property
    def table(self) -> Columns:
        """The rows as columns: names and a list of cells for each."""
        names = Difference.__slots__
        return {str(name): [getattr(row, name) for row in self.rows] for name in names}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with one row per value of the first run.

        | column | |
        |---|---|
        | `label`, `other` | its name in the first run; its counterpart in the second |
        | `status` | "equal", "different", "other shape", "not saved", "uninitialised memory" … |
        | `max_abs`, `mean_abs` | largest and mean absolute difference |
        | `relative` | largest difference divided by the largest absolute value |
        | `cosine` | cosine of the two values |
        | `nan_mismatches` | elements where one value is NaN or infinite and the other differs |
        | `error`, `expected` | root mean square of the difference, relative; what rounding explains of it, estimated |
        | `agrees` | whether the difference is within rounding |
        """
        return to_pandas(self.table)

    def __str__(self) -> str:
        return encodable(describe(self))

    __repr__ = __str__


_SAME: Final = ("equal", UNWRITTEN)


def compare(first: ModelHistory, second: ModelHistory) -> Comparison:
    """Match the values of two runs and compare them.

    Runs of one program are matched operation by operation, others by their numbers and along the dataflow.
    """
    same = structural_hash(first.ops) == structural_hash(second.ops)
    unwritten = unwritten_memory(first), unwritten_memory(second)
    if same:
        unwritten = (unwritten_in_either(*unwritten),) * 2
        rows = [row for op in range(len(first.ops)) for row in _op_differences(first, op, second, op, unwritten)]
        if all(row.status in _SAME for row in rows):
            return Comparison(tuple(rows), (), (), same, notes=_notes(first, second), histories=(first, second))
    alignment = Alignment(first, second, unwritten, same_program=same)
    matches = value_rows(alignment)
    if not same:
        rows = [row for match in matches.values() for row in _matched_differences(first, second, match, unwritten)]
    judged = {match.label: match for match in matches.values()}
    return Comparison(
        rows=tuple(_judged(row, judged.get(row.label)) for row in rows),
        missing=() if same else alignment.unmatched(alignment.first, {match.index for match in matches.values()}),
        extra=() if same else alignment.unmatched(alignment.second, {match.other for match in matches.values()}),
        same_structure=same,
        divergences=tuple(alignment.divergences()),
        precision=alignment.precision,
        notes=_notes(first, second),
        histories=(first, second),
    )


def _notes(first: ModelHistory, second: ModelHistory) -> tuple[tuple[str, str], ...]:
    """Return the notes that only one of the runs has, where each was edited, and that compiled code was not run."""
    ours, theirs = first.info.notes + _edits(first), second.info.notes + _edits(second)
    return (
        *(("both", note) for note in ours if note in theirs and note not in first.info.notes),
        *(("both", note) for note in ours if note in theirs and note == COMPILED_AS_EAGER),
        *(("first", note) for note in ours if note not in theirs),
        *(("second", note) for note in theirs if note not in ours),
    )


def _edits(history: ModelHistory) -> tuple[str, ...]:
    labels = history.facts.layers.label
    edits = [f"{labels(op.index)} ({op.edited.removeprefix('edited ')})" for op in history.ops if op.edited]
    return (f"edited at {first_names(edits)}",) if edits else ()


def _judged(row: Difference, match: Match | None) -> Difference:
    """Add the counterpart of a value, and whether it agrees, to its row."""
    if match is None:
        return row
    return replace(row, other=match.other_label, error=match.error, expected=match.expected, agrees=match.agrees)


def _matched_differences(
    first: ModelHistory, second: ModelHistory, match: Match, unwritten: tuple[Places, Places]
) -> Iterator[Difference]:
    """Compare a value with its counterpart, which may have another shape or order."""
    op, other = first.ops[match.op], second.ops[match.other_op]
    shape, other_shape = op.tensors[match.output].shape, other.tensors[match.other_output].shape
    reshaped = shape != other_shape and numel(shape) == numel(other_shape) and len(op.tensors) == len(other.tensors)
    in_place = match.order == () and match.output == match.other_output
    if op.name == other.name and in_place and not reshaped:
        if match.output == 0:
            yield from _op_differences(first, op.index, second, other.index, unwritten)
    elif match.arrays is None:
        yield Difference(match.label, "not saved")
    elif match.arrays[0].size != match.arrays[1].size:
        yield Difference(match.label, f"shape {match.arrays[0].shape} against {match.arrays[1].shape}")
    else:
        yield difference(match.label, *match.arrays)


def _op_differences(
    first: ModelHistory, first_index: int, second: ModelHistory, second_index: int, unwritten: tuple[Places, Places]
) -> Iterator[Difference]:
    label = first.facts.layers.label(first_index)
    first_op, second_op = first.ops[first_index], second.ops[second_index]
    count, second_count = len(first_op.outputs), len(second_op.outputs)
    if count != second_count:
        yield Difference(label, f"{count} outputs against {second_count}")
        return
    if len(first_op.written) != len(second_op.written):
        yield Difference(label, f"{len(first_op.written)} arguments written against {len(second_op.written)}")
    for output in range(min(len(first_op.tensors), len(second_op.tensors))):
        name = value_label(first, first_index, output)
        shapes = first_op.tensors[output].shape, second_op.tensors[output].shape
        if shapes[0] != shapes[1]:
            yield Difference(name, f"shape {shapes[0]} against {shapes[1]}")
            continue
        places = [known.get((op, output)) for known, op in zip(unwritten, (first_index, second_index), strict=True)]
        try:
            values = first.trace.value(first_index, output), second.trace.value(second_index, output)
            yield _difference(name, values, places)
        except ValueUnavailable:
            yield Difference(name, "not saved")


def _difference(name: str, values: tuple[Any, Any], unwritten: list[Unwritten | None]) -> Difference:
    """Return the difference of two values of one shape, where they were written."""
    same_type = str(values[0].dtype) == str(values[1].dtype)
    arrays = to_numpy(values[0]), to_numpy(values[1])
    if any(places is not None and not places.is_sure for places in unwritten) and not bits_equal(*arrays):
        return Difference(name, UNWRITTEN)
    if all(places is not None and places.is_whole for places in unwritten):
        return Difference(name, UNWRITTEN)
    sure = [places if places is not None and places.is_sure else None for places in unwritten]
    return difference(name, *map(written_numbers, arrays, sure), same_type=same_type)
