"""Shapes of results that were computed before: a stack of equal blocks asks for the same ones again and again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]


class ShapeCache:
    """Run operations on meta tensors, each kind of call once.

    Only operations that return new tensors are remembered: neither views nor writes.
    """

    def __init__(self) -> None:
        self._layouts: dict[Any, tuple[type | None, list[Layout | None]]] = {}
        self._makes_new: dict[Any, bool] = {}

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what `func(*args, **kwargs)` returns on meta."""
        makes_new = self._makes_new.get(func)
        if makes_new is None:
            makes_new = self._makes_new[func] = _makes_new(func)
        if not makes_new:
            return func(*args, **kwargs)
        try:
            key = (func, _signature(args), _signature(kwargs) if kwargs else None)
            known = self._layouts.get(key)
        except TypeError:  # an argument without a hash
            return func(*args, **kwargs)
        if known is not None:
            container, layouts = known
            made = [_made(layout) for layout in layouts]
            return made[0] if container is None else container(made)
        result = func(*args, **kwargs)
        if (layout := _layouts_of(result)) is not None:
            self._layouts[key] = layout
        return result


def _makes_new(func: Any) -> bool:
    schema = func._schema
    return not any(value.alias_info is not None for value in (*schema.arguments, *schema.returns))


def _signature(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.device.type != "meta":
            raise TypeError
        return (value.shape, value.stride(), value.dtype, value.storage_offset())
    if isinstance(value, list | tuple):
        return tuple([_signature(item) for item in value])
    if isinstance(value, dict):
        return tuple([(key, _signature(item)) for key, item in value.items()])
    return (type(value), value)  # 1, 1.0 and True are equal


def _layouts_of(result: Any) -> tuple[type | None, list[Layout | None]] | None:
    """Return how to make such a result again; None where it is more than new meta tensors."""
    items = result if type(result) in (list, tuple) else [result]
    layouts: list[Layout | None] = []
    for item in items:
        if item is None:
            layouts.append(None)
        elif isinstance(item, Tensor) and item.device.type == "meta" and not item.storage_offset():
            layouts.append((item.shape, item.stride(), item.dtype))
        else:
            return None
    return (type(result) if items is result else None), layouts


def _made(layout: Layout | None) -> Tensor | None:
    if layout is None:
        return None
    shape, stride, dtype = layout
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
