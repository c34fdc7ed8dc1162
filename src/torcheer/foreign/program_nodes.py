"""The graph of a model file: nodes that read and make named values; and as plain data, on its way between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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


def plain_program(program: Program) -> dict[str, Any]:
    """A program as JSON has it."""
    return {
        "name": program.name, "inputs": program.inputs, "outputs": program.outputs,
        "nodes": [
            [node.operation, node.inputs, node.outputs, node.modules, node.settings] for node in program.nodes
        ],
        "shapes": {name: [known.shape, known.type] for name, known in program.shapes.items()},
        "weights": program.weights, "buffers": sorted(program.buffers),
    }  # fmt: skip


def program_of(plain: Mapping[str, Any]) -> Program:
    """The program that `plain_program` wrote down; raises `ValueError` or `TypeError` for what is none."""
    return Program(
        _text(plain["name"]), _texts(plain["inputs"]), _texts(plain["outputs"]),
        tuple(
            Node(_text(operation), _texts(inputs), _texts(outputs), _pairs(modules), _pairs(settings))
            for operation, inputs, outputs, modules, settings in plain["nodes"]
        ),
        {name: ValueShape(_lengths(shape), _text(type)) for name, (shape, type) in plain["shapes"].items()},
        {name: _text(tensor) for name, tensor in plain["weights"].items()}, frozenset(_texts(plain["buffers"])),
    )  # fmt: skip


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a text is missing")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _pairs(values: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(first), _text(second)) for first, second in values)


def _lengths(values: Any) -> tuple[int, ...]:
    if any(type(value) is not int or value < UNKNOWN for value in values):
        raise TypeError("a length is missing")
    return tuple(values)
