"""Reshaping, permuting, repeating and joining tensors."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.rule_table import Shape, rule


@rule("view", "reshape", "flatten", "squeeze", "unsqueeze", "ravel", "reshape_as", "unflatten", "_unsafe_view")
def view(g: Any, x: Shape, *args: Shape, **settings: Any) -> Any:
    r"""$\bar x = \text{reshape}(\bar y)$: the numbers did not change, only their shape."""
    return g.reshape(x.shape)


@rule("transpose")
def transpose(g: Any, x: Shape, dim0: int, dim1: int) -> Any:
    r"""$\bar x = \bar y^\top$: swap the two axes back."""
    return g.transpose(dim0, dim1)


@rule("t", "T")
def t(g: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y^\top$: transposing twice changes nothing."""
    return g.permute(list(range(g.ndim))[::-1])


@rule("mT", "adjoint", "H", "mH")
def mT(g: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y^\top$: swap the last two axes back."""
    return g.transpose(-2, -1)


@rule("permute")
def permute(g: Any, x: Shape, *dims: Any) -> Any:
    r"""$\bar x = \text{permute}^{-1}(\bar y)$: every axis returns to its old position."""
    order = [axis % x.ndim for axis in (dims[0] if not isinstance(dims[0], int) else dims)]
    return g.permute([order.index(axis) for axis in range(x.ndim)])


@rule("movedim")
def movedim(g: Any, x: Shape, source: Any, destination: Any) -> Any:
    r"""$\bar x = \text{movedim}^{-1}(\bar y)$: the axis moves back."""
    return g.movedim(destination, source)


@rule("expand", "expand_as", "broadcast_to")
def expand(g: Any, x: Shape, *args: Shape, **settings: Any) -> Any:
    r"""$\bar x = \sum \bar y$ over the copies: the engine sums, because the shapes differ."""
    return g


@rule("flip")
def flip(g: Any, x: Shape, *dims: Any) -> Any:
    r"""$\bar x = \text{flip}(\bar y)$: flipped back."""
    return g.flip(dims[0] if not isinstance(dims[0], int) else dims)


@rule("roll")
def roll(g: Any, x: Shape, shifts: Any, dims: Any = None) -> Any:
    r"""$\bar x = \text{roll}(\bar y)$: by the same amount in the other direction."""
    return g.roll([-shift for shift in shifts] if not isinstance(shifts, int) else -shifts, dims)


@rule("cat")
def cat(g: Any, tensors: Shape, dim: int = 0) -> Any:
    r"""$\bar x_i = $ its slice of $\bar y$: each tensor gets the gradient of its part of the result."""
    ends = torch.tensor([tensor.shape[dim] if tensor.shape != (0,) else 0 for tensor in tensors]).cumsum(0).tolist()
    pieces = zip([0, *ends], ends, tensors)
    return ([g.narrow(dim, begin, end - begin) if end > begin else g.new_zeros(x.shape) for begin, end, x in pieces],)


@rule("stack")
def stack(g: Any, tensors: Shape, dim: int = 0) -> Any:
    r"""$\bar x_i = \bar y_i$: each tensor gets its own slice of the gradient."""
    return ([g.select(dim, place) for place in range(len(tensors))],)


@rule("tril")
def tril(g: Any, x: Shape, diagonal: int = 0) -> Any:
    r"""$\bar x = \text{tril}(\bar y)$: entries that were set to zero get no gradient."""
    return g.tril(diagonal)


@rule("triu")
def triu(g: Any, x: Shape, diagonal: int = 0) -> Any:
    r"""$\bar x = \text{triu}(\bar y)$: entries that were set to zero get no gradient."""
    return g.triu(diagonal)


@rule("repeat")
def repeat(g: Any, x: Shape, *sizes: Any) -> Any:
    r"""$\bar x = \sum \bar y$ over the copies: a repeated value gets the sum of its copies' gradients."""
    times = sizes[0] if not isinstance(sizes[0], int) else sizes
    shape = (1,) * (len(times) - x.ndim) + tuple(x.shape)
    pairs = [size for pair in zip(times, shape) for size in pair]
    return g.reshape(pairs).sum(list(range(0, len(pairs), 2))).reshape(x.shape)
