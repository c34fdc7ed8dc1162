"""What a cell of a table can hold: numbers, text, lists of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

MOST_NUMBERS: Final = 65_536  # numbers of a tensor in a cell
_LARGE: Final = 2**63
_PLAIN: Final = frozenset((int, float, str, bool, type(None)))  # what nobody can change afterwards


def frozen_cells(cells: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a row that later changes of its arrays do not reach; the rest of its conversion can wait."""
    row = dict(cells)
    for name, value in row.items():
        if type(value) not in _PLAIN:
            row[name] = cell_of(value)
    return row


def cell_of(value: Any) -> Any:
    """A cell's value as JSON, with Python's NaN and Infinity, can represent it."""
    kind = type(value)
    if kind is int and -_LARGE < value < _LARGE:
        return value
    if kind is float:  # the common case
        return value
    if value is None or kind is bool or isinstance(value, str):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if isinstance(value, list | tuple | np.ndarray | np.generic):
        return _array_cell(value)
    if isinstance(value, Integral):
        return int(value) if abs(int(value)) < _LARGE else None
    if isinstance(value, Real) or hasattr(value, "__float__"):
        return float(value)
    return str(value)


def _array_cell(value: Any) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return f"a list of {len(value):,}"
    if array.ndim == 0:
        return cell_of(array.item())
    if array.dtype.kind not in "biuf" or array.size > MOST_NUMBERS:
        return f"{array.dtype} {array.shape}"
    return array.tolist()
