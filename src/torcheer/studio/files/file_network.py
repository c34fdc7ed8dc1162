"""The tensors of a model file as a network: a layer for each, below modules made of their names; equal blocks ×N."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from torcheer.modelfiles import FileTensor
from torcheer.network.network_records import Layer, ModuleNode, Network, Variable
from torcheer.terminal import human_shape

VALUE: Final = "Value"
MOST_CELLS: Final = 1 << 18  # numbers of a tensor that are drawn; of larger ones a sample, evenly spread
_MOST_LAYERS: Final = 2000

Signature = tuple[object, ...]  # equal for modules whose tensors have the same names, shapes and types


def network_of(name: str, tensors: Iterable[FileTensor]) -> Network:
    """A network of tensors, in their order; beyond 2,000 the rest is left out, with a note."""
    all_tensors = list(tensors)
    shown = all_tensors[:_MOST_LAYERS]
    notes = (f"the first {_MOST_LAYERS:,} of {len(all_tensors):,} tensors",) if len(all_tensors) > len(shown) else ()
    layers = tuple(_layer(tensor) for tensor in shown)
    return Network(name, layers, (), (Variable(VALUE, doc="what the file holds"),), _modules(shown), notes)


def in_reading_order(tensors: Iterable[FileTensor]) -> list[FileTensor]:
    """As the file has them; where that is the alphabet's order (`h.10` before `h.2`), as people count."""
    listed = list(tensors)
    names = [tensor.name for tensor in listed]
    return sorted(listed, key=lambda tensor: _counted(tensor.name)) if names == sorted(names) else listed


def _counted(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def preview_shape(tensor: FileTensor) -> tuple[int, ...]:
    """The shape of what is drawn of a tensor: its own, or that of a sample."""
    if tensor.size <= MOST_CELLS:
        return tensor.shape or (1,)
    rows, width = tensor.row_shape
    row_step, column_step = tensor.preview_steps(MOST_CELLS)
    return (-(-rows // row_step), -(-width // column_step))


def _layer(tensor: FileTensor) -> Layer:
    sampled = tensor.size > MOST_CELLS
    kind = f"{tensor.type} {human_shape(tensor.shape)}, a sample" if sampled else tensor.type
    return Layer(tensor.name, preview_shape(tensor), kind)


def _modules(tensors: list[FileTensor]) -> tuple[ModuleNode, ...]:
    """A module for each prefix of a name, each after its parent; `output` is its largest tensor."""
    inside: dict[str, list[FileTensor]] = {}
    for tensor in tensors:
        parts = tensor.name.split(".")[:-1][:32]
        for depth in range(1, len(parts) + 1):
            if path := ".".join(parts[:depth]):  # a name may begin with a dot
                inside.setdefault(path, []).append(tensor)
    repeats = _repeats(inside)
    return tuple(
        ModuleNode(path, "", path.rpartition(".")[0], repeats=repeats.get(path, 1), output=_largest(held))
        for path, held in inside.items()
    )


def _largest(tensors: list[FileTensor]) -> str:
    return max(tensors, key=lambda tensor: (tensor.is_readable, tensor.size)).name


def _repeats(inside: dict[str, list[FileTensor]]) -> dict[str, int]:
    """How many equal siblings begin with each module; 0 for the others among them."""
    repeats: dict[str, int] = {}
    first, signature = "", Signature()
    for path, held in sorted(inside.items(), key=lambda item: item[0].rpartition(".")[0]):  # siblings in their order
        parent, _, last = path.rpartition(".")
        own = (parent, *sorted((tensor.name[len(path) :], tensor.shape, tensor.type) for tensor in held))
        if last.isdecimal() and own == signature:
            repeats[first] = repeats.get(first, 1) + 1
            repeats[path] = 0
        else:
            first, signature = path, own
    return repeats
