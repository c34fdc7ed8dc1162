"""How two runs differ, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ValueUnavailable
from torcheer.history.program_structure import structural_hash
from torcheer.history.value_arrays import bits_equal, to_numpy
from torcheer.terminal import align, cut, plural

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of one operation, in both runs."""

    label: str  # as the first run has it; "max_1_3[1]" is the second output
    status: str  # "equal", "different", "other shape", "not saved", …
    max_abs: float = NAN
    mean_abs: float = NAN
    relative: float = NAN  # the largest difference against the largest value
    cosine: float = NAN
    nan_mismatches: int = 0  # places where one is NaN or infinite and the other is something else


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every difference between two runs; true when every value is equal bit for bit."""

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
        """The first layer whose values differ."""
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
        return "\n".join([*lines, *(cut(align([head, *rows], left=2), 60) if rows else [])])

    __repr__ = __str__


def compare(one: ModelHistory, other: ModelHistory) -> Comparison:
    """Match operations by layer number and pass, and compare their values."""
    mine, yours = _by_name(one), _by_name(other)
    rows: list[Difference] = []
    for name, index in mine.items():
        if name in yours:
            rows += _op_differences(one, index, other, yours[name])
    return Comparison(
        rows=tuple(rows),
        missing=tuple(one.facts.layers.label(index) for name, index in mine.items() if name not in yours),
        extra=tuple(other.facts.layers.label(index) for name, index in yours.items() if name not in mine),
        same_structure=structural_hash(one.ops) == structural_hash(other.ops),
    )


def _by_name(history: ModelHistory) -> dict[str, int]:
    """Labels without positions: one op more at the start must not shift all the others."""
    return {
        f"{layer.short}:{number}": index
        for layer in history.facts.layers.all
        for number, index in enumerate(layer.ops, 1)
    }


def _op_differences(one: ModelHistory, mine: int, other: ModelHistory, yours: int) -> Iterator[Difference]:
    label = one.facts.layers.label(mine)
    first, second = one.ops[mine], other.ops[yours]
    count, their_count = len(first.outputs), len(second.outputs)
    if count != their_count:
        yield Difference(label, f"{count} outputs against {their_count}")
        return
    if len(first.written) != len(second.written):
        yield Difference(label, f"{len(first.written)} arguments written against {len(second.written)}")
    for output in range(min(len(first.tensors), len(second.tensors))):
        name = label if count == 1 else f"{label}[{output}]"
        if output >= count:
            name = f"{label} written[{output - count}]"
        shapes = first.tensors[output].shape, second.tensors[output].shape
        if shapes[0] != shapes[1]:
            yield Difference(name, f"shape {shapes[0]} against {shapes[1]}")
            continue
        try:
            values = one.trace.value(mine, output), other.trace.value(yours, output)
            yield difference(name, *map(to_numpy, values), same_type=str(values[0].dtype) == str(values[1].dtype))
        except ValueUnavailable:
            yield Difference(name, "not saved")


def difference(label: str, one: NDArray[Any], other: NDArray[Any], *, same_type: bool = True) -> Difference:
    """Measure two arrays of one shape against each other."""
    if same_type and bits_equal(one, other):
        return Difference(label, "equal", 0.0, 0.0, 0.0, 1.0)
    wide = np.complex128 if np.iscomplexobj(one) or np.iscomplexobj(other) else np.float64
    a, b = one.astype(wide).ravel(), other.astype(wide).ravel()
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
