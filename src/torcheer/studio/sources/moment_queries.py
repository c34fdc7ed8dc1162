"""Queries about a source's moments, independent of where the values are stored."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from torcheer.control.loop_messages import Moment
from torcheer.encoding import real_numbers
from torcheer.network.network_records import Layer, Net, Projection
from torcheer.studio.sources.connected_weights import Part, into, out_of
from torcheer.studio.sources.layer_frames import GAP, is_gap
from torcheer.studio.tensors.numpy_code import Opening

Array = NDArray[Any]
Floats = NDArray[np.float32]
Unit = tuple[str, int]

OF_WEIGHTS: Final = ("r.Wt", "s.Wt", "r.DWt", "s.DWt")
_RASTER_CELLS: Final = 16 << 20  # limits the moments in a large layer's raster


class RecordedValue(NamedTuple):
    """A stored value: its first axis is the batch from item `first` on.

    Weights have no batch axis.
    """

    first: int
    array: Array


Values = dict[tuple[str, str], RecordedValue]  # by layer or projection, and variable
Reasons = dict[tuple[str, str], str]  # by layer and variable


class Store(Protocol):
    """A storage of values by moment: in memory or on disk."""

    @property
    def moments(self) -> list[Moment]:
        """The stored moments, oldest first."""

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """The value of a layer or projection; None if there is none."""

    def values(self, moment: int) -> Values:
        """All values of a moment."""

    def parameter_names(self, moment: int) -> list[str]:
        """The names of the parameters and buffers that have a value at a moment."""

    def why(self, moment: int, layer: str, variable: str) -> str:
        """The recorded reason for a missing value, half a sentence; "" if there is none."""

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """How Python opens a value."""

    def frozen(self) -> Store:
        """The same values for another thread; they stay while the store goes on."""


class MomentQueries:
    """The queries about a network's values, common to all sources."""

    def __init__(self, store: Store, net: Callable[[], Net | None]) -> None:
        self.store, self._net = store, net
        self._cached: tuple[Net | None, dict[str, Layer], list[Projection]] = (None, {}, [])

    def _layers(self) -> dict[str, Layer]:
        net = self._net()
        if net is not self._cached[0]:
            layers = {} if net is None else {placed.layer.name: placed.layer for placed in net.layers}
            projections = [] if net is None else [projection for projection in net.projections if projection.kind]
            self._cached = (net, layers, projections)
        return self._cached[1]

    def layer(self, name: str) -> Layer | None:
        """A layer whose tensors can be inspected, by its name; None if there is none."""
        return self._layers().get(name)

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> Floats | None:
        """A value for each unit of a layer; None if there is none."""
        record = self._layers().get(layer)
        if record is None:
            return None
        if variable in OF_WEIGHTS:
            return None if of is None else self._weights(moment, layer, variable, of)
        values = self._item(moment, record, variable, item)
        return None if values is None else _fit_to_layer(values, tuple(record.shape))

    def _item(self, moment: int, layer: Layer, variable: str, item: int) -> Array | None:
        """One batch item of a layer's value, as stored."""
        value = self.store.value(moment, layer.name, variable)
        if value is None:
            return None
        first, array = value
        if array.shape == tuple(layer.shape) or array.ndim == 0:  # no batch axis
            return array
        position = item - max(first, 0)
        if not 0 <= position < len(array):  # an item of a batch that is too large to send may be stored separately
            single = self.store.value(moment, layer.name, f"{variable}[{item}]")
            array, position = (array[:0], 0) if single is None else (single.array, 0)
        return array[position] if len(array) else None

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        """A unit's exact number as a numpy scalar.

        None if there is none, or for variables of weights.
        """
        record = self._layers().get(layer)
        values = None if record is None or variable in OF_WEIGHTS else self._item(moment, record, variable, item)
        if record is None or values is None or values.size != prod(record.shape) or not 0 <= unit < values.size:
            return None
        number = values.reshape(-1)[unit]
        return number if number.dtype.kind in "iu" else real_numbers(number)[()]

    def raster(
        self, layer: str, variable: str, item: int, count: int, of: Unit | None = None, moment: int = -1
    ) -> Floats | None:
        """A row per unit, a column for each moment up to `moment` (-1: the newest).

        None without any value.
        """
        record = self._layers().get(layer)
        if record is None or not prod(record.shape) or count < 1:
            return None
        units = prod(record.shape)
        moments = [stored.id for stored in self.store.moments if moment < 0 or stored.id <= moment]
        moments = moments[-min(count, max(_RASTER_CELLS // units, 1)) :]
        columns = [self.units(number, layer, variable, item, of) for number in moments]
        if all(column is None for column in columns):
            return None
        raster = np.full((units, len(columns)), GAP, np.float32)
        for number, column in enumerate(columns):
            if column is not None:
                raster[:, number] = column
        return raster

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        """A unit's values over all moments."""
        moments, record = self.store.moments, self._layers().get(layer)
        values: dict[str, list[float | None]] = {
            variable: [
                None if record is None else self._number(moment.id, record, variable, item, unit) for moment in moments
            ]
            for variable in variables
        }
        return {
            "moments": [moment.id for moment in moments], "steps": [moment.step for moment in moments],
            "values": values,
        }  # fmt: skip

    def _number(self, moment: int, layer: Layer, variable: str, item: int, unit: int) -> float | None:
        values = None if variable in OF_WEIGHTS else self._item(moment, layer, variable, item)
        if values is None or not 0 <= unit < values.size or values.size != prod(layer.shape):
            return None
        return float(real_numbers(values.reshape(-1)[unit : unit + 1])[0])

    # -- missing values ----------------------------------------------------------------------------------------------

    def why(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> str:
        """Why a layer has no value, in half a sentence."""
        record = self._layers().get(layer)
        if record is None:
            return "there is no such layer"
        if variable in OF_WEIGHTS:
            return self._no_weights(layer, variable, of)
        value = self.store.value(moment, layer, variable)
        if value is None:
            return self.store.why(moment, layer, variable) or "it was not recorded at this moment"
        first, array = value
        if self._item(moment, record, variable, item) is None:
            return f"item {item} was not recorded: those from {max(first, 0)} to {max(first, 0) + len(array) - 1} were"
        return f"it had another shape then: {tuple(array.shape[1:])}, not {tuple(record.shape)}"

    def _no_weights(self, layer: str, variable: str, of: Unit | None) -> str:
        if of is None:
            return "click a unit: these are its weights"
        ends = (of[0], layer) if variable[0] == "r" else (layer, of[0])
        if not any((projection.receiver, projection.sender) == ends for projection in self._cached[2]):
            return f"no weights that can be shown lead {'to' if variable[0] == 'r' else 'from'} {of[0]}"
        if variable.endswith("DWt"):
            return "a change needs two states with the same weights"
        return "its weights were not recorded at this moment"

    # -- weights -----------------------------------------------------------------------------------------------------

    def _weights(self, moment: int, layer: str, variable: str, of: Unit) -> Floats | None:
        """The weights between a layer and the clicked unit; earlier projections take precedence."""
        weights: Floats | None = None
        direction, change = variable[0], variable.endswith("DWt")
        for projection in self._cached[2]:
            ends = (projection.receiver, projection.sender)
            if ends != ((of[0], layer) if direction == "r" else (layer, of[0])):
                continue
            part = (
                self._change(moment, projection, direction, of)
                if change
                else self._part(moment, projection, direction, of)
            )
            values = None if part is None else self._spread(projection, part, direction, of[1])
            if values is not None:
                weights = values if weights is None else np.where(is_gap(weights), values, weights)
        return weights

    def _spread(self, projection: Projection, part: Part, direction: str, unit: int) -> Floats | None:
        receiver, sender = self._cached[1][projection.receiver], self._cached[1][projection.sender]
        return (into if direction == "r" else out_of)(projection, part, receiver, sender, unit)

    def _part(self, moment: int, projection: Projection, direction: str, of: Unit) -> Part | None:
        """The whole weights, or the unit's row or column where only that was sent."""
        value = self.store.value(moment, projection.name, "Wt")
        if value is not None:
            return Part(real_numbers(value.array), True)
        value = self.store.value(moment, projection.name, f"Wt[{'in' if direction == 'r' else 'out'}:{of[1]}]")
        return None if value is None else Part(real_numbers(value.array), False)

    def _change(self, moment: int, projection: Projection, direction: str, of: Unit) -> Part | None:
        """The difference to the previous moment that has the same weights."""
        current = self._part(moment, projection, direction, of)
        if current is None:
            return None
        for earlier in reversed(self.store.moments):
            if earlier.id < moment:
                previous = self._part(earlier.id, projection, direction, of)
                if previous is None or previous.whole != current.whole:
                    continue
                if previous.array.shape == current.array.shape:
                    return Part(current.array - previous.array, current.whole)
        return None


def _fit_to_layer(values: Array, shape: tuple[int, ...]) -> Floats | None:
    """One float32 for each unit.

    A value with fewer tokens or pixels than the layer is padded with gaps.
    """
    if values.size == prod(shape):
        return real_numbers(values).reshape(-1).astype(np.float32)
    if values.ndim != len(shape):
        return None
    fitted = np.full(shape, GAP, np.float32)
    common = tuple(slice(min(pair)) for pair in zip(values.shape, shape))
    fitted[common] = real_numbers(values[common])
    return fitted.reshape(-1)
