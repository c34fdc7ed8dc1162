"""Python that opens the same slice as a numpy array, to be copied from the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torcheer.studio.tensors.tensor_slices import Window
from torcheer.vocabulary.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Opening:
    """Lines of Python, and an expression that is the whole tensor; of torch, or of numpy."""

    lines: tuple[str, ...] = ()
    expression: str = ""
    torch: bool = False
    note: str = ""  # without an expression: why there is none, and what to do. Else what must be known


def slice_code(opening: Opening, windows: Sequence[Window], index: Sequence[int], type: str) -> str:
    """The code of a slice; "" where the tensor cannot be opened."""
    if not opening.expression:
        return ""
    ndim = len(index)
    shown = [window for window in windows if window.axis >= 0]
    parts = [str(position) for position in index]
    for window in shown:
        parts[window.axis] = f"{window.first}:{window.first + window.count}"
    slice_text = f"[{', '.join(parts)}]" if ndim else ""
    lines = [*opening.lines, f"array = {opening.expression}{_to_numpy(opening, type)}{slice_text}"]
    kept = sorted(window.axis for window in shown)
    order = [kept.index(window.axis) for window in shown]
    if order != sorted(order):
        lines.append(f"array = array.transpose({', '.join(map(str, order))})  # as it was shown")
    return "\n".join(lines)


def _to_numpy(opening: Opening, type: str) -> str:
    is_missing = type in DTYPES and not DTYPES[type].in_numpy
    if opening.torch:
        return ".float().numpy(force=True)" if is_missing else ".numpy(force=True)"
    return '.astype("float32")' if is_missing else ""
