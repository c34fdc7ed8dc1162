"""The rows of a comparison: a value of both sides, in which respect and how much they differ."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from torcheer.history.alignment.array_difference import UNWRITTEN, Difference
from torcheer.runlog.table_records import Column, TableHead
from torcheer.studio.comparison.tensor_pairs import Pair
from torcheer.terminal import human_shape

_NUMBERS: Final = ("Relative", "Max", "Mean", "Cosine")
HEAD: Final = TableHead(
    "differences", "Differences", columns=(
        Column("Layer", "text", plotted=False), Column("Result", "text", plotted=False),
        *(Column(name, plotted=name == "Relative") for name in _NUMBERS), Column("NaN or ∞", "int", plotted=False),
        *(Column(name, "text", plotted=False) for name in ("Shape", "Type", "Kind", "Counterpart")),
    ),
)  # fmt: skip
EQUAL, DIFFERS, FIRST_THAT_DIFFERS = "equal", "differs", "differs first"
_RESULTS: Final = {
    "different": DIFFERS,
    "equal values, other bits or type": "equal values, other type",
    UNWRITTEN: "equal where it is written",  # uninitialised memory: the page marks what is not "equal …"
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table; `cells` are in the order of its columns."""

    name: str
    result: str
    cells: dict[str, Any]

    @property
    def differs(self) -> bool:
        """Whether both sides have it, and not the same."""
        return self.result in (DIFFERS, FIRST_THAT_DIFFERS, "other shape")

    @property
    def group(self) -> str:
        """What it counts as in a summary."""
        return DIFFERS.removesuffix("s") if self.differs else self.result.partition(":")[0]

    @property
    def columns(self) -> dict[str, Any]:
        """The cells by column."""
        return {**self.cells, "Result": self.result}


def row_of(pair: Pair, measured: Difference, result: str = "") -> Row:
    """The row of two tensors; `result` says more than the measured status, which it replaces."""
    cells: dict[str, Any] = {
        "Layer": pair.name, "Counterpart": pair.other, "Kind": pair.kind, "Shape": _both(pair, "shape"),
        "Type": _both(pair, "type"), "Max": _number(measured.max_abs), "Mean": _number(measured.mean_abs),
        "Relative": _number(measured.relative), "Cosine": _number(measured.cosine),
        "NaN or ∞": measured.nan_mismatches if isfinite(measured.max_abs) else None,
    }  # fmt: skip
    return Row(pair.name, result or _RESULTS.get(measured.status, measured.status), cells)


def _both(pair: Pair, fact: str) -> str:
    """A fact of both sides; of two that differ, both."""
    texts = [_text(getattr(tensor, fact)) for tensor in (pair.first, pair.second) if tensor is not None]
    return " → ".join(dict.fromkeys(texts))


def _text(fact: Any) -> str:
    return fact if isinstance(fact, str) else human_shape(fact)


def _number(value: float) -> float | None:
    return value if value == value else None  # NaN: there is no such number
