"""Copies of values: bit for bit, with their strides, and still part of the autograd graph."""

from __future__ import annotations

import torch
from torch import Tensor

from torcheer.capture.torch_state import LOST_GRAPHS, DelayedError, is_wrapped, require
from torcheer.capture.values.memory_layout import NO_MEMORY, PLAIN


def copy_of(tensor: Tensor) -> Tensor:
    """Copy a tensor with its strides, detached from its graph."""
    value = tensor.detach() if tensor.requires_grad else tensor
    return restrided(value.clone(), value)


def graph_copy(tensor: Tensor) -> Tensor:
    """Copy a tensor with its strides, still part of the autograd graph."""
    if not tensor.requires_grad:
        return copy_of(tensor)
    try:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            copied = tensor.clone()
        else:
            with torch.inference_mode(False), torch.enable_grad():
                copied = tensor.clone()
    except RuntimeError:  # a view that autograd has invalidated
        return cut_off(copy_of(tensor))
    if not copied.requires_grad:  # called below autograd, in a dispatch mode
        return cut_off(copied)
    if type(copied) in PLAIN and not is_wrapped(copied) and copied.stride() != tensor.stride():
        copied.data = restrided(copied.detach(), tensor.detach())
    return copied


def restrided(copied: Tensor, like: Tensor) -> Tensor:
    """Return a copy with the strides of `like`, if it can have them."""
    try:
        if copied.stride() != like.stride():
            strided = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            strided.copy_(like)
            return strided
    except NO_MEMORY:  # no strides, or overlapping elements
        pass
    return copied


CUT_OFF = (
    "this value of a torcheer history was written in place where its autograd graph could not be kept: no backward"
)


def cut_off(value: Tensor) -> Tensor:
    """Make backward through a value whose graph is lost raise, instead of doing nothing."""
    if not (value.is_floating_point() or value.is_complex()):
        return value
    require(LOST_GRAPHS)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = value.detach().requires_grad_()
            delayed: Tensor = DelayedError(CUT_OFF.encode(), 1)(leaf)
            return delayed
    except RuntimeError:
        return value


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are bit-equal, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    try:
        if torch.equal(first, second):
            return True
    except NotImplementedError:  # complex numbers of half precision
        pass
    return _same_bytes(first, second)


def _same_bytes(first: Tensor, second: Tensor) -> bool:
    try:
        a = (
            first.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
        )  # a 0-dimensional tensor cannot be viewed as bytes
        b = second.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    except RuntimeError:
        return False
    return bool(torch.equal(a, b))
