"""The graph of a model file: nodes that read and make named values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

UNKNOWN: Final = -1  # a length that the file does not say, or names only


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a program."""

    operation: str  # "Conv", "conv2d"
    inputs: tuple[str, ...]  # names of values; "" for one that is left out
    outputs: tuple[str, ...]
    modules: tuple[tuple[str, str], ...] = ()  # around it, outermost first: address and type, without the model
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ValueShape:
    """What is known of a value before anything runs."""

    shape: tuple[int, ...]
    type: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes in the order in which they run."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    shapes: dict[str, ValueShape] = field(default_factory=dict)  # of values, where the file says them
    weights: dict[str, str] = field(default_factory=dict)  # name of a value -> the tensor of the file that it is
    buffers: frozenset[str] = frozenset()  # of those tensors, the ones that no optimizer trains
