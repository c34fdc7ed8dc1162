"""Numbers that are known although the tensors are meta: positions, masks, labels that were given.

Models read such numbers to decide what to do (`if (positions == 0).all()`), and meta tensors have none. What comes from
constants and from given integers alone is computed for real beside the meta tensors, while it is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

MOST_NUMBERS = 1 << 22  # of a tensor that is computed for real


class KnownValues:
    """Real tensors beside those meta tensors whose numbers are known."""

    def __init__(self) -> None:
        self._real: Any = WeakTensorKeyDictionary()  # meta tensor -> real one

    def learn(self, meta: Tensor, real: Tensor) -> None:
        """Remember the numbers of a meta tensor, if they are integers and few."""
        if real.device.type != "meta" and not real.is_floating_point() and real.numel() <= MOST_NUMBERS:
            self._real[meta] = real.detach().cpu()

    def of(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's real numbers; None where they are unknown."""
        return self._real.get(tensor) if tensor.is_meta else tensor

    def compute(self, func: Any, args: Any, kwargs: Any, tensors: Sequence[Tensor]) -> Any:
        """Run an operation on the real numbers of its arguments; None where one is unknown, large or random."""
        real: dict[int, Tensor | None] = {}
        for tensor in tensors:
            value = real[id(tensor)] = self.of(tensor)
            if value is None or value.numel() > MOST_NUMBERS:
                if func._schema.is_mutable:
                    self._forget_written(func, args)
                return None
        if torch.Tag.nondeterministic_seeded in func.tags or (not tensors and _size(args) > MOST_NUMBERS):
            return None
        try:
            return func(*_replaced(args, real), **_replaced({**kwargs, **_on_cpu(kwargs)}, real))
        except Exception:  # whatever it is, the operation itself will say so
            return None

    def note(self, meta: Any, real: Any) -> None:
        """Remember the real numbers of an operation's results."""
        for made, value in zip(_tensors(meta), _tensors(real), strict=False):
            if made.device.type == "meta" and made.shape == value.shape:
                self._real[made] = value

    def _forget_written(self, func: Any, args: Any) -> None:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors(value):
                    self._real.pop(tensor, None)


def _on_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"device": "cpu"} if kwargs.get("device") is not None else {}


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [item for item in value if isinstance(item, Tensor)] if isinstance(value, list | tuple) else []


def _size(args: Any) -> int:
    """The numbers that a factory makes: of a size, or of a range."""
    numbers = args[0] if args and isinstance(args[0], list | tuple) else args[:2]
    size = 1
    for number in numbers:
        is_count = isinstance(number, int | float) and math.isfinite(number)  # -inf is what a mask is filled with
        size *= max(int(number), 1) if is_count else 1
    return size


def _replaced(value: Any, real: dict[int, Tensor | None]) -> Any:
    if isinstance(value, Tensor):
        return real.get(id(value), value)
    if isinstance(value, dict):
        return {key: _replaced(item, real) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_replaced(item, real) for item in value])
    return value
