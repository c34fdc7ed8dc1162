"""Copies of values: bit for bit, laid out in memory as they were, and still part of the autograd graph."""

from __future__ import annotations

import torch
from torch import Tensor

from torcheer.capture.torch_state import LOST_GRAPHS, DelayedError, is_wrapped, require
from torcheer.capture.values.memory_layout import NO_MEMORY, PLAIN


def copy_of(tensor: Tensor) -> Tensor:
    """Copy a tensor with its layout, detached from its graph."""
    value = tensor.detach() if tensor.requires_grad else tensor
    return laid_out(_clone(value), value)


def graph_copy(tensor: Tensor) -> Tensor:
    """Copy a tensor with its layout, still part of the autograd graph."""
    if not tensor.requires_grad:
        return copy_of(tensor)
    try:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            copied = _clone(tensor)
        else:
            with torch.inference_mode(False), torch.enable_grad():
                copied = _clone(tensor)
    except RuntimeError:  # a view that autograd has invalidated
        return cut_off(copy_of(tensor))
    if not copied.requires_grad:  # called below autograd, in a dispatch mode
        return cut_off(copied)
    if type(copied) in PLAIN and not is_wrapped(copied):
        plain = copied.detach()
        if (placed := laid_out(plain, tensor.detach())) is not plain:
            copied.data = placed
    return copied


def _clone(tensor: Tensor) -> Tensor:
    """Clone a tensor; of a conjugate, what it is the conjugate of: kernels compute from that."""
    return tensor.conj().clone().conj() if tensor.is_conj() else tensor.clone()


ALIGNMENT = 64  # bytes: where a value begins within as many, kernels may choose their order of summation by


def laid_out(copied: Tensor, like: Tensor, begin: int | None = None) -> Tensor:
    """Return a copy with the strides and the alignment of `like`, so that kernels compute the same bits from it.

    `begin` is the address at which the value was, if that is not where `like` is.
    """
    if like.is_conj():
        return laid_out(copied.conj(), like.conj(), begin).conj()
    try:
        place = (like.data_ptr() if begin is None else begin) % ALIGNMENT
        if copied.stride() == like.stride() and copied.data_ptr() % ALIGNMENT == place:
            return copied
        if not like.numel() or place % like.element_size():
            return copied
        return _place(like, place // like.element_size())
    except NO_MEMORY:  # no plain memory
        return copied


def _place(like: Tensor, offset: int) -> Tensor:
    """Copy a tensor into memory of its own, from an element of that on; elements that share memory share it there."""
    sizes, strides = like.shape, like.stride()
    extent = 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    memory = torch.empty(offset + extent, dtype=like.dtype, device=like.device)
    window = torch.empty(0, dtype=like.dtype, device=like.device)
    window.set_(memory.untyped_storage(), offset, sizes, strides)
    if extent < like.numel() or 0 in strides:
        memory[offset:].copy_(like.as_strided((extent,), (1,)))
    else:
        window.copy_(like)
    return window


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
        if type(first) not in PLAIN and torch.equal(first, second):  # a subclass may not let its bits be seen
            return True
        return bool(torch.equal(_bits(first), _bits(second)))
    except RuntimeError:
        return False


def _bits(tensor: Tensor) -> Tensor:
    """Return the numbers as integers of as many bits: 0.0 is not -0.0 there, and NaN equals itself."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if not (plain.is_floating_point() or plain.is_complex()):
        return plain
    return (torch.view_as_real(plain) if plain.itemsize > 8 else plain).view(_INTEGERS[min(plain.itemsize, 8)])


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
