"""Bit equality of two values: plain, sparse, nested, quantized, wrapped, distributed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.torch_state import DisableTorchFunctionSubclass
from torcheer.capture.values.memory_layout import NO_MEMORY, PLAIN, parts_of
from torcheer.capture.values.value_copies import same_bits
from torcheer.terminal import human_shape


def equal_values(first: Tensor, second: Tensor) -> bool:
    """Whether two values are bit-equal.

    Runs no subclass code, which might communicate with other ranks.
    """
    first_parts, second_parts = parts(first), parts(second)
    if first_parts is not None or second_parts is not None:
        return type(first) is type(second) and _equal_parts(first_parts or [], second_parts or [])
    if first.is_nested and second.is_nested:
        return _equal_parts(list(first.unbind()), list(second.unbind()))
    if (
        first.shape != second.shape
        or first.dtype != second.dtype
        or first.layout != second.layout
        or first.device != second.device
    ):
        return False
    if not has_numbers(first) or not has_numbers(second):
        return True
    if first.layout is not torch.strided and (pieces := parts_of(first)):  # as they are: `coalesce` would add numbers
        return _equal_parts(pieces, parts_of(second))
    if first.layout is not torch.strided:
        return same_bits(first.to_dense(), second.to_dense())
    if first.is_quantized:
        return same_bits(first.int_repr(), second.int_repr())
    return same_bits(first, second)


def _equal_parts(first_parts: list[Tensor], second_parts: list[Tensor]) -> bool:
    return len(first_parts) == len(second_parts) and all(map(equal_values, first_parts, second_parts))


def parts(tensor: Tensor) -> list[Tensor] | None:
    """Return a wrapper's inner tensors (local shards, data and mask); None for other tensors."""
    if type(tensor) is Tensor or type(tensor) is Parameter or hasattr(tensor, "fake_mode"):
        return None
    if hasattr(tensor, "trigger_wait"):  # the result of a collective that may still be pending
        tensor.trigger_wait()
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [getattr(tensor, name) for name in names]
    if _has_memory(tensor):
        return None
    return [value for value in vars(tensor).values() if isinstance(value, Tensor)]


def _has_memory(tensor: Tensor) -> bool:
    with DisableTorchFunctionSubclass():
        try:
            return tensor.layout is not torch.strided or tensor.untyped_storage().data_ptr() != 0
        except NO_MEMORY:
            return False


def has_numbers(tensor: Tensor) -> bool:
    """Whether a tensor has data: not on `meta`, not a fake tensor, not a lazy parameter."""
    return tensor.device.type != "meta" and not hasattr(tensor, "fake_mode") and not is_lazy(tensor)


def is_lazy(tensor: Tensor) -> bool:
    """Whether a tensor is an uninitialised parameter or buffer of a lazy module."""
    return isinstance(tensor, (UninitializedParameter, UninitializedBuffer))


def largest_difference(first: Tensor, second: Tensor) -> float:
    """Return the largest absolute difference of two values; NaN if one of them is NaN alone, or if there is none."""
    first_parts, second_parts = parts(first), parts(second)
    if first_parts and second_parts:
        return max(map(largest_difference, first_parts, second_parts))
    try:
        a, b = _widened(first), _widened(second)
        gap = torch.where(a.eq(b) | (a.ne(a) & b.ne(b)), 0, (a - b).abs())
        return float(gap.max()) if gap.numel() else 0.0
    except (RuntimeError, TypeError, NotImplementedError):
        return float("nan")


def _widened(value: Tensor) -> Tensor:
    """Return the numbers in the largest type of their kind."""
    kind = torch.float64 if value.is_floating_point() else torch.complex128 if value.is_complex() else torch.int64
    return value.detach().to(kind)


def difference_text(first: Tensor, second: Tensor) -> str:
    """Say how a value differs from the one that was recorded."""
    given, recorded = _form_text(first), _form_text(second)
    if given != recorded:
        return f"is {given}, recorded was {recorded}"
    gap = largest_difference(first, second)
    if gap:
        return "differs where only one of the two is NaN" if gap != gap else f"differs by up to {gap:.3g}"
    return "differs in bits alone (the sign of a zero, the kind of a NaN)"


def _form_text(value: Tensor) -> str:
    meta = meta_of(value)
    kind = "" if type(value) in PLAIN else f"{type(value).__name__} of "
    return f"{kind}{human_shape(meta.shape)} {meta.dtype.removeprefix('torch.')} on {meta.device}"
