"""Finding the tensors inside arguments and results."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

Path = tuple[int | str, ...]

# Types that never hold a tensor, so that the hot path need not look.
ATOMS = frozenset(
    {
        int,
        float,
        bool,
        str,
        type(None),
        complex,
        bytes,
        type(Ellipsis),
        slice,
        range,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
        torch.Generator,
    }
)
ATOMS_AND_TENSORS = ATOMS | {Tensor, Parameter}


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a nested value with the way to it; containers are opened, all else is a leaf."""
    if isinstance(value, Tensor) or type(value) in ATOMS:
        yield path, value
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from walk(item, (*path, place))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from walk(item, (*path, name if isinstance(name, (int, str)) else str(name)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from walk(getattr(value, field.name, None), (*path, field.name))
    else:
        yield path, value


def argument_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors of a call's arguments, in order."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            found.append(value)
        elif kind not in ATOMS:
            found += leaves(value)
    return found


def argument_leaves(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a call's arguments with where it enters: (0,) the first argument, ("weight",) a keyword."""
    for place, value in enumerate(args):
        if type(value) in ATOMS_AND_TENSORS:
            yield (place,), value
        else:
            yield from walk(value, (place,))
    for name, value in (kwargs or {}).items():
        yield from walk(value, (name,))


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a nested value, in order."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return [value]
    if kind in ATOMS:
        return []
    if (kind is tuple or kind is list) and all(type(item) is Tensor for item in value):
        return list(value)
    return [item for _, item in walk(value) if isinstance(item, Tensor)]


def result_tensors(value: Any) -> list[Tensor]:
    """The tensors of what a model returned, those in the attributes of plain objects included."""
    found: list[Tensor] = []
    for _, leaf in walk(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif type(leaf) not in ATOMS and not isinstance(leaf, torch.nn.Module) and hasattr(leaf, "__dict__"):
            found += leaves(vars(leaf))
    return found


def replace(value: Any, tensors: Iterator[Any]) -> Any:
    """The same nest with its tensors taken, in order, from `tensors`."""
    if isinstance(value, Tensor):
        return next(tensors)
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, tuple):
        items = [replace(item, tensors) for item in value]
        return kind(*items) if hasattr(value, "_fields") else (tuple(items) if kind is tuple else kind(items))
    if isinstance(value, list):
        return [replace(item, tensors) for item in value]
    if kind is dict:
        return {name: replace(item, tensors) for name, item in value.items()}
    if isinstance(value, MutableMapping):
        other = copy.copy(value)
        for name, item in value.items():
            other[name] = replace(item, tensors)
        return other
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(twin, field.name, replace(getattr(value, field.name, None), tensors))
        return twin
    return value


def swap(value: Any, old: Tensor, new: Tensor) -> Any:
    """The same nest with one tensor exchanged."""
    if value is old:
        return new
    return replace(value, iter([new if tensor is old else tensor for tensor in leaves(value)]))


def snapshot(value: Any) -> Any:
    """An argument as it is now: a list may grow after the call."""
    kind = type(value)
    if kind is list:
        return [snapshot(item) for item in value]
    if kind is tuple:
        return value if all(type(item) in ATOMS for item in value) else tuple(snapshot(item) for item in value)
    return dict(value) if kind is dict else value
