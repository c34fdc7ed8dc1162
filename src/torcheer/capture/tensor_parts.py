"""The part of a tensor that an edit changes: some columns, some heads, some positions of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument


class TensorPart:
    """Some indices along one axis, and some positions along the last axis but one; None for all."""

    def __init__(self, indices: Tensor | None = None, axis: int = -1, positions: Tensor | None = None) -> None:
        self.indices, self.axis, self.positions = indices, axis, positions  # `axis` is that of `indices`

    @property
    def is_empty(self) -> bool:
        """Whether it is nothing: none of the positions is in this call."""
        return self.positions is not None and not self.positions.numel()

    def read(self, x: Tensor) -> Tensor:
        """Return the part of a tensor."""
        return x[self._index(x)]

    def edit(self, x: Tensor, function: Callable[[Tensor], Any], whole: bool = False) -> Tensor:
        """Return a copy of a tensor whose part is what `function` makes of it.

        `whole` gives the function the whole tensor; of what it returns, the part is taken.
        """
        index = self._index(x)
        old = x[index]
        new = function(x)[index] if whole else function(old)
        if not isinstance(new, Tensor) or (new.shape, new.dtype) != (old.shape, old.dtype):
            returned = f"{tuple(new.shape)} {new.dtype}" if isinstance(new, Tensor) else type(new).__name__
            raise BadArgument(f"the edit returned {returned}; the part it was given is {tuple(old.shape)} {old.dtype}")
        edited = x.clone()
        edited[index] = new
        return edited

    def _index(self, x: Tensor) -> tuple[Any, ...]:
        index: list[Any] = [slice(None)] * x.ndim
        axis = self.axis % x.ndim
        indices = None if self.indices is None else self.indices.to(x.device)
        positions = None if self.positions is None else self.positions.to(x.device)
        if indices is not None and positions is not None:  # beside each other, so that the axes stay where they are
            before = axis < x.ndim - 2
            indices, positions = (indices[:, None], positions[None]) if before else (indices[None], positions[:, None])
        if positions is not None:
            index[-2] = positions
        if indices is not None:
            index[axis] = indices
        return tuple(index)


def positions_in_call(positions: slice | Sequence[int], offset: int, length: int) -> list[int]:
    """Return which positions of a call are meant: it sees `length` tokens, after `offset` earlier ones."""
    end = offset + length
    if isinstance(positions, slice):
        wanted = list(range(*positions.indices(end)))
    else:
        wanted = [position + end if position < 0 else position for position in positions]
    return [position - offset for position in wanted if offset <= position < end]


def sequence_offset(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return how many tokens a model has seen before this call: those in the cache that it is given."""
    position = kwargs.get("cache_position")
    if isinstance(position, Tensor) and position.numel():
        return int(position.reshape(-1)[0])
    for value in (*kwargs.values(), *args):
        length = getattr(value, "get_seq_length", None)
        if callable(length):
            try:
                return int(length())
            except (ValueError, NotImplementedError):  # a state-space model's cache has no length
                break
    return _masked_before(args, kwargs)


def _masked_before(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return how much longer the attention mask is than the tokens: those before them are in some cache."""
    mask, ids = kwargs.get("attention_mask"), kwargs.get("input_ids", args[0] if args else None)
    if isinstance(mask, Tensor) and isinstance(ids, Tensor) and mask.ndim == ids.ndim == 2:
        return max(0, int(mask.shape[1] - ids.shape[1]))
    return 0


def positions_tensor(positions: list[int]) -> Tensor:
    """Return positions as an index."""
    return torch.tensor(positions, dtype=torch.long)
