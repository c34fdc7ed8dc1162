"""NaN and infinities in what a live view shows: found where they appear first in time, without a watch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torcheer.network.network_records import GAP_BITS, Layer
from torcheer.samples import NAN_INF, Alert, Key, Nonfinite, began_after, layers_unseen, place_in
from torcheer.tap.tensor_copies import all_finite
from torcheer.vocabulary.variables import LOG_NAMES


class NonfiniteValues:
    """Alerts about the first value with NaN or infinities, until all that is shown is finite again.

    - `is_watched()`: whether a watch reports them, so that this one must not say the same
    """

    def __init__(self, tell: Callable[[Alert], None], is_watched: Callable[[], bool] = lambda: False) -> None:
        self._tell, self._is_watched, self._lock = tell, is_watched, threading.Lock()
        self._failing: set[Key] = set()
        self._began = -1  # when the last alert was given
        self._last_look: int | None = None  # the last step whose layers were shown
        self._last_fine: dict[Key, int] = {}  # the last step at which a key was finite
        self.places: dict[str, str] = {}  # by layer, the class of its module and the line that calls it

    @staticmethod
    def nonfinite(tensor: Any, layer: Layer | None) -> Nonfinite | None:
        """The NaN and infinities in a tensor of the CPU; infinities alone in an input are a mask."""
        fault = _in_tensor(tensor)
        is_mask = fault is not None and not fault.nans and layer is not None and layer.kind == "Input"
        return None if is_mask else fault

    def see_moment(self, step: int, values: Iterable[tuple[Key, Nonfinite | None]]) -> None:
        """Judge the values of a state, in the order in which they were computed."""
        named = [((layer, LOG_NAMES.get(name, name)), fault) for (layer, name), fault in values]
        self._see(step, named)
        self._last_look = step if named else self._last_look

    def see_row(self, table: str, cells: Mapping[str, Any]) -> None:
        """Judge the numbers that were logged for a step; those of tests and epochs may have no value."""
        if table == "train_step":
            numbers = {name: cell for name, cell in cells.items() if _is_number(cell)}
            self._see(cells["Step"], [((name, "metric"), _of_number(float(cell))) for name, cell in numbers.items()])

    def _see(self, step: int, values: list[tuple[Key, Nonfinite | None]]) -> None:
        with self._lock:
            first = next(((key, fault) for key, fault in values if fault is not None), None)
            if first is not None and self._is_cause(first[0]):
                self._began = step
                if not self._is_watched():
                    self._tell(self._alert(*first, step))
            for key, fault in values:
                if fault is not None:
                    self._failing.add(key)
                else:
                    self._failing.discard(key)
                    self._last_fine[key] = step

    def _is_cause(self, key: Key) -> bool:
        """Whether a fault does not follow from another: this key was finite for some time while others were not."""
        return not self._failing or (key not in self._failing and self._last_fine.get(key, -1) > self._began)

    def _alert(self, key: Key, fault: Nonfinite, step: int) -> Alert:
        began = began_after(self._last_fine.get(key), step, key[1])
        began += layers_unseen(self._last_look, step) if key[1] == "metric" else ""
        text, values = fault.text + began, {**fault.values, "began_here": not began}
        place = place_in(self.places, *key)
        return Alert(NAN_INF, *key, step, step, text, fault.advice(key[1]), "error", values, place=place)


def _in_tensor(tensor: Any) -> Nonfinite | None:
    """The NaN and infinities in a tensor of the CPU; gaps are no values."""
    if not isinstance(tensor, Tensor) or all_finite(tensor):
        return None
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    numbers = numbers.float() if numbers.element_size() == 1 else numbers
    nan = torch.isnan(numbers)
    if numbers.dtype == torch.float32:
        nan &= numbers.view(torch.int32) != GAP_BITS
    nans, infs = int(nan.sum()), int(torch.isinf(numbers).sum())
    return Nonfinite(nans, infs, numbers.numel()) if nans or infs else None


def _is_number(cell: Any) -> bool:
    return isinstance(cell, float | np.floating) or (isinstance(cell, Tensor) and cell.numel() == 1)


def _of_number(number: float) -> Nonfinite | None:
    return None if math.isfinite(number) else Nonfinite(int(math.isnan(number)), int(math.isinf(number)), 1)
