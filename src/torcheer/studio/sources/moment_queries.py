"""What a source answers about its moments, wherever their values are kept."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.network.network_records import Layer, Net, Projection
from torcheer.studio.connections.messages import Moment
from torcheer.studio.sources.connected_weights import Part, into, out_of
from torcheer.studio.sources.layer_frames import GAP, is_gap

Array = NDArray[Any]
Floats = NDArray[np.float32]
Unit = tuple[str, int]

OF_WEIGHTS: Final = ("r.Wt", "s.Wt", "r.DWt", "s.DWt")
_RASTER_CELLS: Final = 16 << 20  # a raster of a large layer has fewer moments


class Value(NamedTuple):
    """A value as it came: the first axis is the batch, beginning with item `first`; of weights there is no batch."""

    first: int
    array: Array


class Store(Protocol):
    """Where values are kept."""

    @property
    def moments(self) -> list[Moment]:
        """What there is, oldest first."""

    def value(self, moment: int, name: str, variable: str) -> Value | None:
        """The value of a layer or projection, None where there is none."""


class Answers:
    """The questions about a network's values that all sources answer alike."""

    def __init__(self, store: Store, net: Callable[[], Net | None]) -> None:
        self._store, self._net = store, net
        self._known: tuple[Net | None, dict[str, Layer], list[Projection]] = (None, {}, [])

    def _layers(self) -> dict[str, Layer]:
        net = self._net()
        if net is not self._known[0]:
            layers = {} if net is None else {one.layer.name: one.layer for one in net.layers}
            self._known = (net, layers, [] if net is None else [one for one in net.projections if one.kind])
        return self._known[1]

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> Floats | None:
        """A value for each unit of a layer, None where there is none."""
        known = self._layers().get(layer)
        if known is None:
            return None
        if variable in OF_WEIGHTS:
            return None if of is None else self._weights(moment, layer, variable, of)
        found = self._item(moment, known, variable, item)
        return None if found is None else _fitted(found, tuple(known.shape))

    def _item(self, moment: int, layer: Layer, variable: str, item: int) -> Array | None:
        """One batch item, as it came."""
        value = self._store.value(moment, layer.name, variable)
        if value is None:
            return None
        first, array = value
        if array.shape == tuple(layer.shape) or array.ndim == 0:  # there is no batch
            return array
        place = item - max(first, 0)
        if not 0 <= place < len(array):  # of a batch too large to be sent whole, an item may have come alone
            alone = self._store.value(moment, layer.name, f"{variable}[{item}]")
            array, place = (array[:0], 0) if alone is None else (alone.array, 0)
        return array[place] if len(array) else None

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        """One number of a unit as it came, a numpy scalar; None where there is none, or where it is one of weights."""
        known = self._layers().get(layer)
        found = None if known is None or variable in OF_WEIGHTS else self._item(moment, known, variable, item)
        if known is None or found is None or found.size != prod(known.shape) or not 0 <= unit < found.size:
            return None
        number = found.reshape(-1)[unit]
        return number if number.dtype.kind in "iu" else real_numbers(number)[()]

    def raster(
        self, layer: str, variable: str, item: int, count: int, of: Unit | None = None, moment: int = -1
    ) -> Floats | None:
        """A row per unit, a column for each moment up to one (-1: the newest); None where none of them has a value."""
        known = self._layers().get(layer)
        if known is None or not prod(known.shape) or count < 1:
            return None
        units = prod(known.shape)
        moments = [one.id for one in self._store.moments if moment < 0 or one.id <= moment]
        moments = moments[-min(count, max(_RASTER_CELLS // units, 1)) :]
        columns = [self.units(one, layer, variable, item, of) for one in moments]
        if all(column is None for column in columns):
            return None
        found = np.full((units, len(columns)), GAP, np.float32)
        for number, column in enumerate(columns):
            if column is not None:
                found[:, number] = column
        return found

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        """A unit over all moments."""
        moments, known = self._store.moments, self._layers().get(layer)
        values: dict[str, list[float | None]] = {
            variable: [
                None if known is None else self._one(moment.id, known, variable, item, unit) for moment in moments
            ]
            for variable in variables
        }
        return {
            "moments": [moment.id for moment in moments], "steps": [moment.step for moment in moments],
            "values": values,
        }  # fmt: skip

    def _one(self, moment: int, layer: Layer, variable: str, item: int, unit: int) -> float | None:
        found = None if variable in OF_WEIGHTS else self._item(moment, layer, variable, item)
        if found is None or not 0 <= unit < found.size or found.size != prod(layer.shape):
            return None
        return float(real_numbers(found.reshape(-1)[unit : unit + 1])[0])

    # -- what there is not -------------------------------------------------------------------------------------------

    def why(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> str:
        """Why a layer has no value, in half a sentence."""
        known = self._layers().get(layer)
        if known is None:
            return "there is no such layer"
        if variable in OF_WEIGHTS:
            return self._no_weights(layer, variable, of)
        value = self._store.value(moment, layer, variable)
        if value is None:
            return self.told_why(moment, layer, variable) or "it was not recorded at this moment"
        first, array = value
        if self._item(moment, known, variable, item) is None:
            return f"item {item} was not recorded: those from {max(first, 0)} to {max(first, 0) + len(array) - 1} were"
        return f"it had another shape then: {tuple(array.shape[1:])}, not {tuple(known.shape)}"

    def told_why(self, moment: int, layer: str, variable: str) -> str:
        """What the source itself knows about it, if anything."""
        return ""

    def _no_weights(self, layer: str, variable: str, of: Unit | None) -> str:
        if of is None:
            return "click a unit: these are its weights"
        ends = (of[0], layer) if variable[0] == "r" else (layer, of[0])
        if not any((one.receiver, one.sender) == ends for one in self._known[2]):
            return f"no weights that can be shown lead {'to' if variable[0] == 'r' else 'from'} {of[0]}"
        if variable.endswith("DWt"):
            return "a change needs two states with the same weights"
        return "its weights were not recorded at this moment"

    # -- weights -----------------------------------------------------------------------------------------------------

    def _weights(self, moment: int, layer: str, variable: str, of: Unit) -> Floats | None:
        """Of all projections between the layer and the clicked unit, the first that leads there."""
        found: Floats | None = None
        ways, change = variable[0], variable.endswith("DWt")
        for projection in self._known[2]:
            ends = (projection.receiver, projection.sender)
            if ends != ((of[0], layer) if ways == "r" else (layer, of[0])):
                continue
            part = self._change(moment, projection, ways, of) if change else self._part(moment, projection, ways, of)
            values = None if part is None else self._spread(projection, part, ways, of[1])
            if values is not None:
                found = values if found is None else np.where(is_gap(found), values, found)
        return found

    def _spread(self, projection: Projection, part: Part, ways: str, unit: int) -> Floats | None:
        receiver, sender = self._known[1][projection.receiver], self._known[1][projection.sender]
        return (into if ways == "r" else out_of)(projection, part, receiver, sender, unit)

    def _part(self, moment: int, projection: Projection, ways: str, of: Unit) -> Part | None:
        """Whole weights, or the row or column of the unit where only that was sent."""
        value = self._store.value(moment, projection.name, "Wt")
        if value is not None:
            return Part(real_numbers(value.array), True)
        value = self._store.value(moment, projection.name, f"Wt[{'in' if ways == 'r' else 'out'}:{of[1]}]")
        return None if value is None else Part(real_numbers(value.array), False)

    def _change(self, moment: int, projection: Projection, ways: str, of: Unit) -> Part | None:
        """The difference to the moment before that has the same weights."""
        now = self._part(moment, projection, ways, of)
        if now is None:
            return None
        for earlier in reversed(self._store.moments):
            if earlier.id < moment:
                then = self._part(earlier.id, projection, ways, of)
                if then is not None and then.whole == now.whole and then.array.shape == now.array.shape:
                    return Part(now.array - then.array, now.whole)
        return None


def _fitted(values: Array, shape: tuple[int, ...]) -> Floats | None:
    """One float32 for each unit; of fewer tokens, or a smaller picture, than the layer has, the rest is empty."""
    if values.size == prod(shape):
        return real_numbers(values).reshape(-1).astype(np.float32)
    if values.ndim != len(shape):
        return None
    found = np.full(shape, GAP, np.float32)
    common = tuple(slice(min(pair)) for pair in zip(values.shape, shape))
    found[common] = real_numbers(values[common])
    return found.reshape(-1)
