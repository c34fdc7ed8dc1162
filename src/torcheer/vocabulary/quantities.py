"""Quantities: the numbers that boxes of a graph and slabs of the 3D view can be coloured by.

All are sizes, none below zero: colours go from dark to bright by powers of ten. The page has this table, too
(`web/src/vocabulary.ts`); what a quantity is of an operation stands in `drawing/looks/colour_scale.py`, what it is of a
layer of a log in `web/src/studio/graph/layer_overlays.ts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number to colour by."""

    name: str
    title: str  # in the list to choose from
    legend: str  # what its numbers are
    unit: Literal["seconds", "bytes", "count", ""]  # how they are written; "": with two digits
    source: Literal["pass", "log", "comparison"]  # what has them
    missing: str  # where nothing has them: what to do
    is_mean: bool = False  # of several parts: their sum says nothing
    powers: tuple[int, int] | None = None  # of ten, between which the colours go; null: the shown numbers say it


_PASS: Final = "A recorded pass has it: tl.show(model, inputs)"
_WATCH: Final = "A watch has it: tl.watch(model)"
QUANTITIES: Final = {
    quantity.name: quantity
    for quantity in (
        Quantity("time", "time", "time", "seconds", "pass", _PASS),
        Quantity("memory", "memory", "size of results", "bytes", "pass", _PASS),
        Quantity("flops", "FLOPs", "floating point operations", "count", "pass", _PASS),
        Quantity("parameters", "parameters", "parameters", "count", "pass", _PASS),
        Quantity("gradient", "gradient", "mean |gradient|", "", "pass",
                 "A recorded pass has it: save_gradients=True, then history.backward(loss)", is_mean=True),
        Quantity("gradient_norm", "gradient norm", "norm of the gradient", "", "log", _WATCH, is_mean=True),
        Quantity("update", "update size", "size of the update", "", "log",
                 "A watch with an optimizer has it: tl.watch(model, optimizer=optimizer)", is_mean=True),
        Quantity("nan", "NaN", "NaN", "", "log", "A watch counts them: tl.watch(model)"),
        Quantity("alert", "alerts", "alerts", "", "log", "No rule has found anything so far"),
        Quantity("difference", "difference", "relative difference", "", "comparison",
                 "Two side by side have it: torcheer studio A B", is_mean=True, powers=(-6, 0)),
    )
}  # fmt: skip
OF_A_PASS: Final = tuple(name for name, quantity in QUANTITIES.items() if quantity.source == "pass")
