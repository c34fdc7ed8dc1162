"""What `print(history.compare(other))` shows."""

from __future__ import annotations

from collections import Counter
from math import inf, isnan
from typing import TYPE_CHECKING

from torcheer.history.alignment.array_difference import UNWRITTEN
from torcheer.history.alignment.rounding import MARGIN
from torcheer.terminal import cut, first_names, format_table, plural

if TYPE_CHECKING:
    from torcheer.history.alignment.array_difference import Difference
    from torcheer.history.alignment.divergence import Divergence
    from torcheer.history.compare import Comparison
    from torcheer.history.op_views import OpList, OpView

MOST_ROWS = 60
MOST_NAMES = 20


def describe(comparison: Comparison) -> str:
    """Return where the two part, counts, and a row for each value that does not agree; if all do, that is not equal."""
    rows = comparison.rows
    shown = [
        row for row in rows if row.status not in ("equal", UNWRITTEN) and not (comparison.divergences and row.agrees)
    ]
    table = cut(_table(shown, comparison.same_structure), MOST_ROWS) if shown else []
    return "\n".join([*headlines(comparison), *table])


def headlines(comparison: Comparison) -> tuple[str, ...]:
    """Return the lines above the table: where the two part, how many values are equal, what only one of them has."""
    return (
        *_judgement(comparison),
        f"{plural(len(comparison.rows), 'tensor')} compared: {_counts(comparison)}",
        f"Structure: {'the same' if comparison.same_structure else 'not the same, so values were matched by numbers'}",
        f"First difference: {_first_difference(comparison)}",
        *_names("Only in the first", comparison.missing),
        *_names("Only in the second", comparison.extra),
        *(f"Note on {which if which == 'both' else f'the {which}'}: {note}" for which, note in comparison.notes),
    )


def _counts(comparison: Comparison) -> str:
    """Say how many values are equal, how many differ by rounding, and how many otherwise."""
    counts = Counter(_summary(row) for row in comparison.rows)
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing"


def _summary(row: Difference) -> str:
    if row.status.startswith("shape "):
        return "of another shape"
    if " against " in row.status:
        return "with another number of outputs"
    return f"{row.status}{_reason(row)}"


def _first_difference(comparison: Comparison) -> str:
    label = comparison.first_difference
    row = next((row for row in comparison.rows if row.label == label), None)
    return f"{label}{_reason(row)}" if row else "none"


def _reason(row: Difference) -> str:
    """Say why a value that differs is no fault."""
    if row.status != "different" or isnan(row.error) or not row.agrees:
        return ""
    return " by rounding" if row.error <= MARGIN * row.expected else ", but what is made of it agrees"


def _names(title: str, labels: tuple[str, ...]) -> list[str]:
    return [f"{title}: {first_names(labels, MOST_NAMES)}"] if labels else []


def _judgement(comparison: Comparison) -> list[str]:
    """Say where the runs part, or that rounding explains every difference."""
    if not comparison.precision:
        return []
    unsaved = sum(row.status == "not saved" for row in comparison.rows)
    note = [f"{plural(unsaved, 'value')} could not be compared: not saved in both"] if unsaved else []
    if not comparison.divergences:
        errors = [row.error for row in comparison.rows if row.agrees and 0 < row.error < inf]
        if not comparison.found_values:
            return ["Nothing could be compared: no value of the one corresponds to one of the other", *note]
        largest = f": errors are at most {max(errors):.2g}" if errors else ""
        return [f"They agree up to the rounding of {comparison.precision}{largest}", *note]
    first, *others = comparison.divergences
    more = [f"Independently they part at {', '.join(_ends(other) for other in others[:5])}"] if others else []
    return [*divergence_lines(first), *more, *note]


def divergence_lines(divergence: Divergence) -> list[str]:
    """Say which operations part, what goes in, what comes out and what the difference looks like."""
    inputs = [
        f"{item.label} = {item.other} ({'axes exchanged, ' if item.order else ''}{_error_text(item.error)})"
        for item in divergence.inputs
    ]
    compared = divergence.error < inf
    differ = f"relative error {divergence.error:.2g}" if compared else "cannot be compared number by number"
    expected = (
        f", of which rounding explains {divergence.expected:.1g}" if compared and 0 < divergence.expected < inf else ""
    )
    return [
        f"They part at {_ends(divergence)}: what goes in agrees, what comes out does not",
        f"  first:   {_place(divergence.op, divergence.ops)}",
        f"  second:  {_place(divergence.other_op, divergence.other_ops)}",
        f"  inputs:  {first_names(inputs)}" if inputs else "  inputs:  nothing that could differ",
        f"  results: {differ}{expected}",
        *(f"  hint:    {hint}" for hint in divergence.hints),
    ]


def _error_text(error: float) -> str:
    return "equal" if error == 0 else f"relative error {error:.1g}"


def _ends(divergence: Divergence) -> str:
    names = [op.label if op else "nothing" for op in (divergence.op, divergence.other_op)]
    return names[0] if names[0] == names[1] else f"{names[0]} against {names[1]}"


def _place(op: OpView | None, ops: OpList) -> str:
    """Return an operation with its source line, and those that lead to it from the agreeing inputs."""
    if op is None:
        return "nothing corresponds"
    before = [other for other in ops if other != op]
    through = f", made by {first_names([*(other.label for other in before), op.label], 12)}" if before else ""
    return f"{op.label}{_line(op)}{through}"


def _line(op: OpView) -> str:
    source = op.record.source
    return f" ({source.file.rpartition('/')[2]}:{source.line})" if source else ""


def _table(rows: list[Difference], same_structure: bool) -> list[str]:
    head = ("layer", "", "largest", "mean", "relative", "cosine")
    cells = [_cells(row) for row in rows]
    if same_structure:
        return format_table([head, *cells], left=2)
    others = [(row.label, row.other, *cell[1:]) for row, cell in zip(rows, cells, strict=True)]
    return format_table([("layer", "counterpart", *head[1:]), *others], left=3)


def _cells(row: Difference) -> tuple[str, ...]:
    numbers = (row.max_abs, row.mean_abs, row.relative)
    measured = ["" if isnan(number) else f"{number:.3g}" for number in numbers]
    cosine = "" if isnan(row.cosine) else f"{row.cosine:.6f}"
    odd = f", {plural(row.nan_mismatches, 'place')} with NaN or infinity" if row.nan_mismatches else ""
    return (row.label, row.status + _reason(row) + odd, *measured, cosine)
