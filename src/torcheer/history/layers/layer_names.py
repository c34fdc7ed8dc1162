"""Which operations are passes of one layer, and what everything is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from torcheer.history.layers.loops import find_loops
from torcheer.history.layers.module_places import find_places
from torcheer.records import Op, RunInfo


@dataclass(slots=True)
class Layer:
    """One layer and the operations that are its passes."""

    name: str  # "maxpool2d"
    number: int  # 1 for the first layer of that name
    ops: list[int]  # in order of execution

    @property
    def label(self) -> str:
        """Its full name, "conv2d_3_7"."""
        return f"{self.name}_{self.number}_{self.ops[0]}"

    @property
    def short(self) -> str:
        """Its name without the position, "conv2d_3"."""
        return f"{self.name}_{self.number}"


@dataclass(slots=True)
class Layers:
    """Every layer, and where each operation belongs."""

    all: list[Layer]
    of: list[int]  # op -> position in `all`
    passes: list[int]  # op -> its pass, from 1

    def label(self, index: int) -> str:
        """The name of one operation: its layer's, with the pass where there are several."""
        layer = self.all[self.of[index]]
        return layer.label if len(layer.ops) == 1 else f"{layer.label}:{self.passes[index]}"


def assign_layers(ops: Sequence[Op], info: RunInfo) -> Layers:
    """Sort operations into layers and passes, and number the layers."""
    found = Layers([], [], [])
    positions: dict[int, int] = {}  # first op of a layer -> position of the layer
    counts: dict[str, int] = {}
    for index, first in enumerate(find_loops(ops, find_places(ops, info))):
        position = positions.get(first)
        if position is None:
            position = positions[first] = len(found.all)
            name = layer_name(ops[index].name)
            counts[name] = counts.get(name, 0) + 1
            found.all.append(Layer(name, counts[name], []))
        layer = found.all[position]
        layer.ops.append(index)
        found.of.append(position)
        found.passes.append(len(layer.ops))
    return found


@cache
def layer_name(name: str) -> str:
    """A function's name as labels use it: `max_pool2d` is "maxpool2d", `__getitem__` is "getitem"."""
    return "".join(letter for letter in name.lower() if letter.isalnum()) or "op"
