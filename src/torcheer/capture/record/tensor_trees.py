"""Nested arguments and results: find, replace and copy the tensors in them."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from functools import cache
from operator import is_
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils import _pytree

Path = tuple[int | str, ...]

# Types that never hold a tensor: the hot path skips them.
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
_SEQUENCES = (tuple, list, set, frozenset, deque)
DEEPEST = 64  # levels of nesting; a list may contain itself
ATOMS_AND_TENSORS = ATOMS | {Tensor, Parameter}


@cache
def _is_mapping(kind: type) -> bool:
    return issubclass(kind, Mapping)


@cache
def is_container(kind: type) -> bool:
    """Whether `walk` opens values of a type, or takes them for tensors."""
    return issubclass(kind, (Tensor, tuple, list, Mapping)) or dataclasses.is_dataclass(kind)


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf of a nested value with its path; everything but a container is a leaf."""
    kind: Any = type(value)
    if isinstance(value, Tensor) or kind in ATOMS or len(path) > DEEPEST:
        yield path, value
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from walk(item, (*path, place))
    elif not is_container(kind):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from walk(item, (*path, name if isinstance(name, (int, str)) else str(name)))
    else:
        for field in dataclasses.fields(value):
            yield from walk(getattr(value, field.name, None), (*path, field.name))


def argument_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors of a call's arguments, in order."""
    tensors: list[Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            tensors.append(value)
        elif kind not in ATOMS:
            tensors += leaves(value)
    return tensors


def argument_leaves(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf of a call's arguments with its path.

    (0,) is the first argument, ("weight",) a keyword.
    """
    for place, value in enumerate(args):
        if type(value) in ATOMS_AND_TENSORS:
            yield (place,), value
        else:
            yield from walk(value, (place,))
    for name, value in (kwargs or {}).items():
        yield from walk(value, (name,))


def leaves(value: Any) -> list[Tensor]:
    """Return the tensors of a nested value, in order."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return [value]
    if kind in ATOMS:
        return []
    if (kind is tuple or kind is list) and all(type(item) is Tensor for item in value):
        return list(value)
    return [item for _, item in walk(value) if isinstance(item, Tensor)]


def direct_tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a nested value; none if a user-defined container cannot be walked."""
    try:
        return leaves(value)
    except Exception:
        return []


def tensors_in(value: Any, paths: list[Path] | None = None) -> list[Tensor]:
    """Return the tensors in containers of any kind and in plain objects; append where each stands to `paths`.

    A container is walked as often as it occurs, an object once; a container that contains itself, once. No recursion:
    a tree of objects may be deeper than Python's stack.
    """
    tensors: list[Tensor] = []
    objects: dict[int, Any] = {}  # kept alive, so that their ids are not reused
    open_containers: set[int] = set()
    stack: list[tuple[Any, Path]] = [(value, ())]
    while stack:
        item, place = stack.pop()
        if isinstance(item, Tensor):
            tensors.append(item)
            if paths is not None:
                paths.append(place)
        elif type(item) is _ContainerEnd:
            open_containers.discard(item.key)
        elif type(item) not in ATOMS and id(item) not in objects and id(item) not in open_containers:
            parts, names = _parts(item), None
            if parts is None:
                named = attributes(item)
                objects[id(item)], parts, names = item, list(named.values()), named
            elif parts:
                open_containers.add(id(item))
                stack.append((_ContainerEnd(id(item), item), ()))
            if paths is None:
                stack += [(part, ()) for part in reversed(parts) if type(part) not in ATOMS]
            elif parts:
                places = [(*place, name) for name in names or _part_names(item, len(parts))]
                named_parts = zip(reversed(parts), reversed(places), strict=True)
                stack += [(part, where) for part, where in named_parts if type(part) not in ATOMS]
    return tensors


class _ContainerEnd:
    """A stack marker: all items of a container have been visited."""

    __slots__ = ("held", "key")

    def __init__(self, key: int, held: Any) -> None:
        self.key, self.held = key, held


def _parts(value: Any) -> list[Any] | None:
    """Return the items of a container; None if the value is not a container."""
    kind: Any = type(value)
    if kind in _SEQUENCES:
        return [] if ATOMS.issuperset(map(type, value)) else list(value)
    if isinstance(value, _SEQUENCES):
        return _items(value)
    node = _pytree.SUPPORTED_NODES.get(kind)
    if node is None and not _is_mapping(kind):
        return None
    with suppress(Exception):  # user-defined code, which the model may never call
        return list(value.values() if node is None else node.flatten_fn(value)[0])
    return None


def _items(value: Any) -> list[Any]:
    """Return the items of a subclass of a sequence, also where its own code raises."""
    try:
        return list(value)
    except Exception:
        base: Any = next(kind for kind in _SEQUENCES if isinstance(value, kind))
        return list(base.__iter__(value))


def _part_names(value: Any, count: int) -> list[int | str]:
    """Return the keys, fields or attributes of the parts of a container or object; their positions if it has none."""
    names: list[Any] = []
    if isinstance(value, Mapping):
        with suppress(Exception):  # user-defined code
            names = list(value)
    elif isinstance(value, tuple):
        names = list(getattr(value, "_fields", ()))
    elif not isinstance(value, (list, set, frozenset, deque)):
        names = list(attributes(value))  # a container of pytree's that is an object
    if len(names) != count:
        return list(range(count))
    return [name if isinstance(name, (int, str)) else str(name) for name in names]


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of a plain object.

    None for modules, classes, functions and objects of the standard library.
    """
    kind: Any = type(value)  # mypy takes classes for unhashable
    slots = _slots(kind)
    if slots is None:
        return {}
    values: dict[str, Any] = {}
    with suppress(Exception):  # user-defined code
        values |= getattr(value, "__dict__", None) or {}
    for name, member in slots:
        with suppress(AttributeError):  # a slot that was never set
            values.setdefault(name, member.__get__(value))
    return values


@cache  # caches of keys and values are objects of objects: one is walked at every token of a `generate`
def _slots(kind: type) -> tuple[tuple[str, MemberDescriptorType], ...] | None:
    """Return the slots of a class; None where its objects are not opened."""
    top = kind.__module__.partition(".")[0]
    if issubclass(kind, (torch.nn.Module, type)) or (top in sys.stdlib_module_names and kind is not SimpleNamespace):
        return None
    return tuple(
        (name, member)
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    )


class _Absent:
    """Stands in a row's arguments for a tensor that is not kept."""

    def __repr__(self) -> str:
        return "a tensor"


ABSENT = _Absent()


def replace(value: Any, tensors: Iterator[Any]) -> Any:
    """Return the same nested value with its tensors, kept or absent, taken in order from `tensors`."""
    return _rebuild(value, lambda _: next(tensors), None)


def without_tensors(value: Any) -> Any:
    """Return the same nested argument with ABSENT in the places of its tensors."""
    return _rebuild(value, lambda _: ABSENT, None)


def replace_by_id(value: Any, new: Mapping[int, Tensor]) -> Any:
    """Replace tensors of a nested value, also in plain objects, by `new` (keyed by id)."""
    return _rebuild(value, lambda tensor: new.get(id(tensor), tensor), {})


def _rebuild(value: Any, change: Callable[[Any], Any], objects: dict[int, Any] | None) -> Any:
    """Rebuild a nested value with changed tensors.

    Plain objects are rebuilt only if `objects`, their memo, is given.
    """
    if isinstance(value, Tensor) or value is ABSENT:
        return change(value)
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, tuple):
        items = [_rebuild(item, change, objects) for item in value]
        return kind(*items) if hasattr(value, "_fields") else (tuple(items) if kind is tuple else kind(items))
    if isinstance(value, list):
        return [_rebuild(item, change, objects) for item in value]
    if kind is dict:
        return {name: _rebuild(item, change, objects) for name, item in value.items()}
    if isinstance(value, MutableMapping):
        rebuilt = copy.copy(value)
        for name, item in value.items():
            rebuilt[name] = _rebuild(item, change, objects)
        return rebuilt
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    if not is_record and objects is None:
        return value
    if objects is not None and id(value) in objects:
        return objects[id(value)]
    names = [field.name for field in dataclasses.fields(value)] if is_record and objects is None else attributes(value)
    if not names:
        return value
    rebuilt_object = copy.copy(value)
    if objects is not None:
        objects[id(value)] = rebuilt_object
    for name in names:
        object.__setattr__(rebuilt_object, name, _rebuild(getattr(value, name, None), change, objects))
    return rebuilt_object


def replace_one(value: Any, old: Tensor, new: Tensor) -> Any:
    """Return the same nested value with one tensor replaced."""
    if value is old:
        return new
    return replace(value, iter([new if tensor is old else tensor for tensor in leaves(value)]))


def with_arrays_copied(value: Any) -> Any:
    """Copy numpy's arrays among the arguments of a call, which a program may fill anew; without any, `value` itself."""
    kind = type(value)
    if kind is not list and kind is not tuple and kind is not dict:
        return value.copy() if isinstance(value, numpy.ndarray) else value
    items = list(value.values()) if kind is dict else value
    if ATOMS_AND_TENSORS.issuperset(map(type, items)):
        return value
    copied = list(map(with_arrays_copied, items))
    if all(map(is_, copied, items)):
        return value
    return dict(zip(value, copied, strict=True)) if kind is dict else kind(copied)


def snapshot(value: Any) -> Any:
    """Copy the containers of an argument: a list may be changed after the call."""
    kind = type(value)
    if kind is list:
        return [snapshot(item) for item in value]
    if kind is tuple:
        return value if all(type(item) in ATOMS for item in value) else tuple(snapshot(item) for item in value)
    return dict(value) if kind is dict else value
