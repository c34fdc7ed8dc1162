"""Comparison of two runs, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ValueUnavailable
from torcheer.history.program_structure import structural_hash
from torcheer.history.value_arrays import bits_equal, to_numpy
from torcheer.terminal import cut, format_table, plural

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one output of one operation between two runs."""

    label: str  # in the first run; "max_1_3[1]" is the second output
    status: str  # "equal", "different", "other shape", "not saved", …
    max_abs: float = NAN
    mean_abs: float = NAN
    relative: float = NAN  # largest difference divided by largest absolute value
    cosine: float = NAN
    nan_mismatches: int = 0  # elements where one value is NaN or infinite and the other differs


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences between two runs; true if every value is equal bit for bit."""

    rows: tuple[Difference, ...]
    missing: tuple[str, ...]  # only in the first run
    extra: tuple[str, ...]  # only in the second
    same_structure: bool

    def __bool__(self) -> bool:
        return not self.missing and not self.extra and all(row.status == "equal" for row in self.rows)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.rows)

    @property
    def first_difference(self) -> str | None:
        """Label of the first operation whose values differ."""
        return next((row.label for row in self.rows if row.status not in ("equal", "not saved")), None)

    def __str__(self) -> str:
        counts = {status: sum(row.status == status for row in self.rows) for status in _in_order(self.rows)}
        lines = [
            f"{plural(len(self.rows), 'tensor')} compared: "
            + (", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing"),
            f"Structure: {'the same' if self.same_structure else 'not the same'}",
            f"First difference: {self.first_difference or 'none'}",
            *([f"Only in the first: {', '.join(self.missing[:20])}"] if self.missing else []),
            *([f"Only in the second: {', '.join(self.extra[:20])}"] if self.extra else []),
        ]
        rows = [_cells(row) for row in self.rows if row.status != "equal"]
        head = ("layer", "", "largest", "mean", "relative", "cosine")
        return "\n".join([*lines, *(cut(format_table([head, *rows], left=2), 60) if rows else [])])

    __repr__ = __str__


def compare(first: ModelHistory, second: ModelHistory) -> Comparison:
    """Match operations by layer number and pass, and compare their values."""
    first_ops, second_ops = _by_name(first), _by_name(second)
    rows: list[Difference] = []
    for name, index in first_ops.items():
        if name in second_ops:
            rows += _op_differences(first, index, second, second_ops[name])
    return Comparison(
        rows=tuple(rows),
        missing=tuple(first.facts.layers.label(index) for name, index in first_ops.items() if name not in second_ops),
        extra=tuple(second.facts.layers.label(index) for name, index in second_ops.items() if name not in first_ops),
        same_structure=structural_hash(first.ops) == structural_hash(second.ops),
    )


def _by_name(history: ModelHistory) -> dict[str, int]:
    """Return ops by label without position: an extra op at the start must not shift the others."""
    return {
        f"{layer.short}:{number}": index
        for layer in history.facts.layers.all
        for number, index in enumerate(layer.ops, 1)
    }


def _op_differences(
    first: ModelHistory, first_index: int, second: ModelHistory, second_index: int
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
        name = label if count == 1 else f"{label}[{output}]"
        if output >= count:
            name = f"{label} written[{output - count}]"
        shapes = first_op.tensors[output].shape, second_op.tensors[output].shape
        if shapes[0] != shapes[1]:
            yield Difference(name, f"shape {shapes[0]} against {shapes[1]}")
            continue
        try:
            values = first.trace.value(first_index, output), second.trace.value(second_index, output)
            yield difference(name, *map(to_numpy, values), same_type=str(values[0].dtype) == str(values[1].dtype))
        except ValueUnavailable:
            yield Difference(name, "not saved")


def difference(label: str, first: NDArray[Any], second: NDArray[Any], *, same_type: bool = True) -> Difference:
    """Measure the difference of two arrays of the same shape."""
    if same_type and bits_equal(first, second):
        return Difference(label, "equal", 0.0, 0.0, 0.0, 1.0)
    wide = np.complex128 if np.iscomplexobj(first) or np.iscomplexobj(second) else np.float64
    a, b = first.astype(wide).ravel(), second.astype(wide).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    gaps = np.abs(a[finite] - b[finite])
    largest = float(np.max(np.abs(a[finite]), initial=0.0))
    max_abs = float(np.max(gaps, initial=0.0))
    return Difference(
        label=label,
        status="different" if not same.all() else "equal values, other bits or type",
        max_abs=max_abs,
        mean_abs=float(gaps.mean()) if gaps.size else 0.0,
        relative=max_abs / largest if largest else (0.0 if max_abs == 0 else float("inf")),
        cosine=_cosine(a[finite], b[finite]),
        nan_mismatches=int((~same & ~finite).sum()),
    )


def _cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.real(np.vdot(a, b))) / lengths if lengths else NAN


def _in_order(rows: tuple[Difference, ...]) -> dict[str, None]:
    return dict.fromkeys(row.status for row in rows)


def _cells(row: Difference) -> tuple[str, ...]:
    numbers = (row.max_abs, row.mean_abs, row.relative)
    measured = ["" if np.isnan(number) else f"{number:.3g}" for number in numbers]
    cosine = "" if np.isnan(row.cosine) else f"{row.cosine:.6f}"
    odd = f", {plural(row.nan_mismatches, 'place')} with NaN or infinity" if row.nan_mismatches else ""
    return (row.label, row.status + odd, *measured, cosine)
