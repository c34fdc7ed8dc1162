"""Finding the tensors inside arguments and results."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils import _pytree

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
DEEPEST = 64  # containers in containers; a list may hold itself
ATOMS_AND_TENSORS = ATOMS | {Tensor, Parameter}


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a nested value with the way to it; containers are opened, all else is a leaf."""
    if isinstance(value, Tensor) or type(value) in ATOMS or len(path) > DEEPEST:
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


def direct_tensors(value: Any) -> list[Tensor]:
    """The tensors of a nested value; none where it holds a container of somebody's own that cannot be opened."""
    try:
        return leaves(value)
    except Exception:
        return []


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of what a model was given or returned: in containers of any kind, and in plain objects.

    A container counts as often as it occurs, an object once; what holds itself is opened once. No recursion: a tree of
    objects may be deeper than Python's stack.
    """
    found: list[Tensor] = []
    objects: dict[int, Any] = {}  # held, so that no other takes their ids
    around: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Tensor):
            found.append(item)
        elif type(item) is _End:
            around.discard(item.key)
        elif type(item) not in ATOMS and id(item) not in objects and id(item) not in around:
            parts = _parts(item)
            if parts is None:
                parts, objects[id(item)] = list(attributes(item).values()), item
            else:
                around.add(id(item))
                waiting.append(_End(id(item), item))
            waiting += reversed(parts)
    return found


class _End:
    """All parts of a container have been seen."""

    __slots__ = ("held", "key")

    def __init__(self, key: int, held: Any) -> None:
        self.key, self.held = key, held


def _parts(value: Any) -> list[Any] | None:
    """What a container holds; None where it is an object, if anything."""
    if isinstance(value, (tuple, list, set, frozenset, deque)):
        return [] if ATOMS.issuperset(map(type, value)) else list(value)
    with suppress(Exception):  # what others wrote: the model may never have asked it
        if (node := _pytree.SUPPORTED_NODES.get(type(value))) is not None:
            return list(node.flatten_fn(value)[0])
        if isinstance(value, Mapping):
            return list(value.values())
    return None


def attributes(value: Any) -> dict[str, Any]:
    """What a plain object holds; nothing for modules, classes, functions and what Python itself brings."""
    kind = type(value)
    if isinstance(value, (torch.nn.Module, type)) or kind.__module__ == "builtins":
        return {}
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names and kind is not SimpleNamespace:
        return {}
    found = dict(getattr(value, "__dict__", None) or {})
    for base in kind.__mro__:
        for name, member in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):  # never set
                    found.setdefault(name, member.__get__(value))
    return found


def replace(value: Any, tensors: Iterator[Any]) -> Any:
    """The same nest with its tensors taken, in order, from `tensors`."""
    return _rebuilt(value, lambda _: next(tensors), None)


def exchange(value: Any, new: Mapping[int, Tensor]) -> Any:
    """The same nest, plain objects included, with the tensors that `new` knows by their ids exchanged."""
    return _rebuilt(value, lambda tensor: new.get(id(tensor), tensor), {})


def _rebuilt(value: Any, change: Callable[[Tensor], Any], objects: dict[int, Any] | None) -> Any:
    """The same nest with other tensors; plain objects are copied where `objects` has room for them."""
    if isinstance(value, Tensor):
        return change(value)
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, tuple):
        items = [_rebuilt(item, change, objects) for item in value]
        return kind(*items) if hasattr(value, "_fields") else (tuple(items) if kind is tuple else kind(items))
    if isinstance(value, list):
        return [_rebuilt(item, change, objects) for item in value]
    if kind is dict:
        return {name: _rebuilt(item, change, objects) for name, item in value.items()}
    if isinstance(value, MutableMapping):
        other = copy.copy(value)
        for name, item in value.items():
            other[name] = _rebuilt(item, change, objects)
        return other
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    if not is_record and objects is None:
        return value
    if objects is not None and id(value) in objects:
        return objects[id(value)]
    names = [field.name for field in dataclasses.fields(value)] if is_record and objects is None else attributes(value)
    if not names:
        return value
    twin = copy.copy(value)
    if objects is not None:
        objects[id(value)] = twin
    for name in names:
        object.__setattr__(twin, name, _rebuilt(getattr(value, name, None), change, objects))
    return twin


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
