"""Two recorded passes, value by value: aligned along their dataflow by `history.compare`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import load
from torcheer.encoding import type_name
from torcheer.errors import ValueUnavailable
from torcheer.history.alignment.array_difference import Difference
from torcheer.history.alignment.value_samples import value_label, value_places
from torcheer.history.compare import Comparison
from torcheer.history.model_history import ModelHistory
from torcheer.history.text.comparison_text import headlines
from torcheer.history.value_arrays import to_numpy
from torcheer.network.history_network import describe_pass
from torcheer.network.network_records import Layer
from torcheer.studio.comparison.comparison_rows import FIRST_THAT_DIFFERS, Row, row_of
from torcheer.studio.comparison.tensor_pairs import DIFFERENCE, FIRST, Pair

if TYPE_CHECKING:
    from torcheer.drawing.writers.graph_text import GraphText

_ROUNDING: Final = "by rounding"


@dataclass(frozen=True, slots=True)
class PassValue:
    """A value of a history, or a parameter, which is read when it is asked for."""

    history: ModelHistory
    place: tuple[int, int] | str  # operation and output; the name of a parameter
    shape: tuple[int, ...]
    type: str

    @property
    def is_there(self) -> bool:
        """Whether it was saved."""
        if isinstance(self.place, str):
            try:
                return self.history.trace.stored_value(self.place) is not None
            except ValueUnavailable:
                return False
        return bool(self.history.trace.is_saved(*self.place))

    def mapped(self) -> NDArray[Any]:
        """All of it; raises `ValueUnavailable` if it was not saved."""
        trace = self.history.trace
        return to_numpy(trace.stored_value(self.place) if isinstance(self.place, str) else trace.value(*self.place))


class ComparedPasses:
    """Two saved histories; which value belongs to which is known once they are compared."""

    def __init__(self, first: Path, second: Path, titles: tuple[str, str]) -> None:
        self.titles, self._paths = titles, (first, second)
        self._histories = load(first), load(second)
        ops = self._histories[0].ops
        self._description = describe_pass(ops, self._histories[0].info.model or titles[0])
        self.network, self.batch = self._description.network, self._description.batch.size
        self._layers = {layer.name: layer for layer in self.network.layers}
        self._names = self._layer_names()
        self.pairs: dict[str, Pair] = {}
        self.total = 0  # unknown until they are compared
        self.first_difference, self.summary = "", tuple[str, ...]()

    def _layer_names(self) -> dict[int, str]:
        """A name for each operation that is a layer's: the layer's own for what it returns, else with the function."""
        names = {op.index: name for name, op in self._description.inputs.items()}
        names |= {source.act.index: name for name, source in reversed(self._description.sources.items())}
        owners = self._description.layer_of()
        ops = self._histories[0].ops
        return {index: f"{owner} · {ops[index].name}" for index, owner in owners.items()} | names

    # -- values --------------------------------------------------------------------------------------------------------

    def layer(self, name: str) -> Layer | None:
        """A layer of the first pass; any other value as one of its own, without the batch; a parameter."""
        pair = self.pairs.get(name)
        if pair is None or name in self._layers:
            return self._layers.get(name)
        if pair.kind in ("parameter", "buffer"):
            types = self._histories[0].facts.module_types
            return Layer(name, pair.shape, types.get(name.rpartition(".")[0], ""), view="weight")
        has_batch = self.batch > 0 and pair.shape[:1] == (self.batch,)
        shape = pair.shape[1:] if has_batch else pair.shape
        return Layer(name, shape, pair.kind, view="maps" if len(shape) == 3 else "auto")

    def array(self, name: str, variable: str) -> Any:
        """A value of either pass, or their difference, lazily; None where it is not there."""
        pair = self.pairs.get(name)
        return None if pair is None or self.why(name, variable) else pair.array(variable)

    def sample(self, name: str, variable: str) -> NDArray[Any] | None:
        """The same: a layer is drawn whole."""
        array = self.array(name, variable)
        return None if array is None else np.asarray(array)

    def why(self, name: str, variable: str) -> str:
        """Why a value cannot be shown; "" if it can."""
        pair = self.pairs.get(name)
        if pair is None:
            return "it is between the values that are compared, or they are still being compared"
        if variable == DIFFERENCE and pair.absence:
            return pair.absence
        sides = (pair.first, pair.second) if variable == DIFFERENCE else (pair.side(variable),)
        if None in sides:
            return f"the {'first' if variable == FIRST else 'second'} has nothing that corresponds to it"
        if any(isinstance(side, PassValue) and not side.is_there for side in sides):
            return "it was not saved: layers_to_save='all' keeps everything"
        return ""

    # -- rows ----------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Align and compare, then yield the values in order of execution, and the parameters after them."""
        first, second = (load(path) for path in self._paths)  # of their own: others read while this takes long
        comparison = first.compare(second)
        self.summary = headlines(comparison)
        rows = [*self._value_rows(comparison), *self._parameter_rows()]
        self.total = len(rows)
        yield from rows

    def _value_rows(self, comparison: Comparison) -> Iterator[Row]:
        first, second = self._histories
        places, others = value_places(first), value_places(second)
        parting = _parting(comparison)
        for row in comparison.rows:
            place, other = places.get(row.label), others.get(row.other or row.label)
            yield self._row(row.label, place, other, row, row.label == parting)
        for label in comparison.missing:
            yield self._row(label, _first_place(places, label), None, Difference(label, "only in the first"))
        for label in comparison.extra:
            place = _first_place(others, label)
            yield self._row(label, None, place, Difference(label, "only in the second"))

    def _row(
        self, label: str, place: tuple[int, int] | None, other: tuple[int, int] | None, row: Difference,
        parts: bool = False,
    ) -> Row:  # fmt: skip
        first, second = self._histories
        own = first if place is not None else second
        number = place or other or (0, 0)
        name = self._names.get(place[0], label) if place is not None and not place[1] else label
        name = name if name not in self.pairs else self._free_name(label)
        counterpart = value_label(second, *other) if place is not None and other is not None else ""
        pair = Pair(
            name, _value(first, place), _value(second, other), counterpart if counterpart != label else "",
            value_label(own, *number),
        )  # fmt: skip
        self.pairs[name] = pair
        if parts:
            self.first_difference = name
        return row_of(pair, row, FIRST_THAT_DIFFERS if parts else _result(row))

    def _parameter_rows(self) -> Iterator[Row]:
        """The parameters and buffers that both have saved under one name."""
        first, second = self._histories
        for name, stored in first.info.stored.items():
            value, other = _parameter(first, name), _parameter(second, name)
            if value is not None and other is not None and value.is_there and other.is_there:
                pair = Pair(self._free_name(name), value, other, kind=stored.kind)
                self.pairs[pair.name] = pair
                yield row_of(pair, pair.measured())

    def _free_name(self, name: str) -> str:
        return name if name not in self.pairs else self._free_name(f"{name}′")

    def graph(self) -> GraphText:
        """The drawing of the first pass."""
        from torcheer.drawing import draw_history

        return draw_history(load(self._paths[0])).page_text(self._description.layer_of())


def _parting(comparison: Comparison) -> str:
    """The label of the first value that differs: where the two part, if rounding does not explain it."""
    divergence = comparison.divergence
    if divergence is not None and divergence.op is not None:
        label = divergence.op.label
        return next((row.label for row in comparison.rows if row.label.partition("[")[0] == label), label)
    if divergence is None:
        return ""
    return next((row.label for row in comparison.rows if not row.agrees), "")


def _result(row: Difference) -> str:
    """What to say of a value that differs and agrees: rounding explains it, or what is made of it agrees."""
    if row.status.startswith("shape "):
        return "other shape"
    if row.status != "different" or not row.agrees or row.error != row.error:
        return ""
    return _ROUNDING


def _first_place(places: dict[str, tuple[int, int]], label: str) -> tuple[int, int] | None:
    return places.get(label) or places.get(f"{label}[0]")


def _parameter(history: ModelHistory, name: str) -> PassValue | None:
    stored = history.info.stored.get(name)
    return None if stored is None else PassValue(history, name, tuple(stored.shape), type_name(stored.dtype))


def _value(history: ModelHistory, place: tuple[int, int] | None) -> PassValue | None:
    if place is None:
        return None
    tensor = history.ops[place[0]].tensors[place[1]]
    return PassValue(history, place, tuple(tensor.shape), type_name(tensor.dtype))
