"""Copies of values: bit for bit, with their strides, and still part of the autograd graph."""

from __future__ import annotations

import torch
from torch import Tensor

from torcheer.capture.values.memory_layout import NO_MEMORY, PLAIN, is_wrapped


def copy_of(tensor: Tensor) -> Tensor:
    """The value now, in memory of its own, with the strides it has and without a graph."""
    value = tensor.detach() if tensor.requires_grad else tensor
    return restrided(value.clone(), value)


def graph_copy(tensor: Tensor) -> Tensor:
    """The value now, in memory of its own; what is computed from it sends gradients where the tensor's own would go."""
    if not tensor.requires_grad:
        return copy_of(tensor)
    try:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            copied = tensor.clone()
        else:
            with torch.inference_mode(False), torch.enable_grad():
                copied = tensor.clone()
    except RuntimeError:  # a view that autograd itself gave up
        return cut_off(copy_of(tensor))
    if not copied.requires_grad:  # below autograd
        return cut_off(copied)
    if type(copied) in PLAIN and not is_wrapped(copied) and copied.stride() != tensor.stride():
        copied.data = restrided(copied.detach(), tensor.detach())
    return copied


def restrided(copied: Tensor, like: Tensor) -> Tensor:
    """A copy with the strides of the value it was made from, where it can have them."""
    try:
        if copied.stride() != like.stride():
            other = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            other.copy_(like)
            return other
    except NO_MEMORY:  # no strides, or several elements in one place
        pass
    return copied


CUT_OFF = (
    "this value of a torcheer history was written in place where its autograd graph could not be kept: no backward"
)


def cut_off(value: Tensor) -> Tensor:
    """A value that required grad and whose graph is gone: backward through it says so, instead of reaching nothing."""
    if not (value.is_floating_point() or value.is_complex()):
        return value
    try:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = value.detach().requires_grad_()
            found: Tensor = torch._C._functions.DelayedError(CUT_OFF.encode(), 1)(leaf)
            return found
    except RuntimeError:
        return value


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal to the last bit, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    try:
        if torch.equal(one, other):
            return True
    except NotImplementedError:  # complex numbers of half precision
        pass
    return _same_bytes(one, other)


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    try:
        a = one.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)  # a single number has no bytes
        b = other.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    except RuntimeError:
        return False
    return bool(torch.equal(a, b))
