"""Layers: which operations are passes of one layer, and the labels of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from torcheer.history.layers.loops import find_loops
from torcheer.history.layers.module_places import find_places
from torcheer.records import Op, RunInfo
from torcheer.selection import label_name


@dataclass(slots=True)
class LayerPasses:
    """One layer and the operations that are its passes."""

    name: str  # "maxpool2d"
    number: int  # 1 for the first layer of that name
    ops: list[int]  # in order of execution

    @property
    def label(self) -> str:
        """The full label, "conv2d_3_7"."""
        return f"{self.name}_{self.number}_{self.ops[0]}"

    @property
    def short(self) -> str:
        """The label without the position, "conv2d_3"."""
        return f"{self.name}_{self.number}"


@dataclass(slots=True)
class LayerTable:
    """All layers, and the layer and pass of each operation."""

    all: list[LayerPasses]
    of: list[int]  # op -> position in `all`
    passes: list[int]  # op -> its pass, from 1

    def label(self, index: int) -> str:
        """Return an operation's label: its layer's, with the pass if there are several."""
        layer = self.all[self.of[index]]
        return layer.label if len(layer.ops) == 1 else f"{layer.label}:{self.passes[index]}"


def assign_layers(ops: Sequence[Op], info: RunInfo) -> LayerTable:
    """Group operations into layers and passes, and number the layers."""
    table = LayerTable([], [], [])
    positions: dict[int, int] = {}  # first op of a layer -> position of the layer
    counts: dict[str, int] = {}
    for index, first in enumerate(find_loops(ops, find_places(ops, info))):
        position = positions.get(first)
        if position is None:
            position = positions[first] = len(table.all)
            name = layer_name(ops[index].name)
            counts[name] = counts.get(name, 0) + 1
            table.all.append(LayerPasses(name, counts[name], []))
        layer = table.all[position]
        layer.ops.append(index)
        table.of.append(position)
        table.passes.append(len(layer.ops))
    return table


@cache
def layer_name(name: str) -> str:
    """Return a function's name in labels: "maxpool2d" for `max_pool2d`."""
    return label_name(name)
