"""Whether two values are the same to the last bit, in every form a tensor takes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from torcheer.capture.values.memory_layout import NO_MEMORY
from torcheer.capture.values.value_copies import same_bits


def equal_values(one: Tensor, other: Tensor) -> bool:
    """Bit-equal, without running anything that a subclass makes of a comparison: some would ask the other ranks."""
    mine, yours = parts(one), parts(other)
    if mine is not None or yours is not None:
        return type(one) is type(other) and _equal_parts(mine or [], yours or [])
    if one.is_nested and other.is_nested:
        return _equal_parts(list(one.unbind()), list(other.unbind()))
    if one.shape != other.shape or one.dtype != other.dtype or one.layout != other.layout or one.device != other.device:
        return False
    if not has_numbers(one) or not has_numbers(other):
        return True
    if one.layout is torch.sparse_coo:
        a, b = one.coalesce(), other.coalesce()
        return same_bits(a.indices(), b.indices()) and same_bits(a.values(), b.values())
    if one.layout is not torch.strided:
        return same_bits(one.to_dense(), other.to_dense())
    if one.is_quantized:
        return same_bits(one.int_repr(), other.int_repr())
    return same_bits(one, other)


def _equal_parts(mine: list[Tensor], yours: list[Tensor]) -> bool:
    return len(mine) == len(yours) and all(map(equal_values, mine, yours))


def parts(tensor: Tensor) -> list[Tensor] | None:
    """The tensors that a wrapper stands for: local shards, data and mask; None for a tensor with memory of its own."""
    if type(tensor) is Tensor or type(tensor) is Parameter or hasattr(tensor, "fake_mode"):
        return None
    if hasattr(tensor, "trigger_wait"):  # the result of a collective that may be still under way
        tensor.trigger_wait()
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [getattr(tensor, name) for name in names]
    if _has_memory(tensor):
        return None
    return [value for value in vars(tensor).values() if isinstance(value, Tensor)]


def _has_memory(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return tensor.layout is not torch.strided or tensor.untyped_storage().data_ptr() != 0
        except NO_MEMORY:
            return False


def has_numbers(tensor: Tensor) -> bool:
    """Whether there is a number to look at: not on `meta`, not in a fake tensor, not in a lazy parameter."""
    return tensor.device.type != "meta" and not hasattr(tensor, "fake_mode") and not is_lazy(tensor)


def is_lazy(tensor: Tensor) -> bool:
    """Whether it is a parameter or buffer of a lazy module that has not run yet."""
    return isinstance(tensor, (UninitializedParameter, UninitializedBuffer))


def largest_difference(one: Tensor, other: Tensor) -> float:
    """How far two values are apart; NaN where that cannot be said."""
    mine, yours = parts(one), parts(other)
    if mine and yours:
        return max(map(largest_difference, mine, yours))
    try:
        gap = (one.detach().to(torch.float64) - other.detach().to(torch.float64)).abs()
        return float(gap.max()) if gap.numel() else 0.0
    except (RuntimeError, TypeError, NotImplementedError):
        return float("nan")
