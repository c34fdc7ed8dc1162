"""The same numbers in another arrangement: the gradient is arranged back."""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.rule_table import Shape, rule


@rule("view", "reshape", "flatten", "squeeze", "unsqueeze", "ravel", "reshape_as", "unflatten", "_unsafe_view")
def view(g: Any, x: Shape, *rest: Shape, **settings: Any) -> Any:
    r"""$\bar x = \text{reshape}(\bar y)$: the numbers did not change, only how they are counted."""
    return g.reshape(x.shape)


@rule("transpose")
def transpose(g: Any, x: Shape, dim0: int, dim1: int) -> Any:
    r"""$\bar x = \bar y^\top$: exchange the two axes once more."""
    return g.transpose(dim0, dim1)


@rule("t", "T")
def t(g: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y^\top$: turning over twice changes nothing."""
    return g.permute(list(range(g.ndim))[::-1])


@rule("mT", "adjoint", "H", "mH")
def mT(g: Any, x: Shape) -> Any:
    r"""$\bar x = \bar y^\top$: the last two axes, exchanged once more."""
    return g.transpose(-2, -1)


@rule("permute")
def permute(g: Any, x: Shape, *dims: Any) -> Any:
    r"""$\bar x = \text{permute}^{-1}(\bar y)$: every axis goes back to where it came from."""
    order = [axis % x.ndim for axis in (dims[0] if not isinstance(dims[0], int) else dims)]
    return g.permute([order.index(axis) for axis in range(x.ndim)])


@rule("movedim")
def movedim(g: Any, x: Shape, source: Any, destination: Any) -> Any:
    r"""$\bar x = \text{movedim}^{-1}(\bar y)$: the axis moves back."""
    return g.movedim(destination, source)


@rule("expand", "expand_as", "broadcast_to")
def expand(g: Any, x: Shape, *rest: Shape, **settings: Any) -> Any:
    r"""$\bar x = \sum \bar y$ over the copies: the engine sums, because the shapes differ."""
    return g


@rule("flip")
def flip(g: Any, x: Shape, *dims: Any) -> Any:
    r"""$\bar x = \text{flip}(\bar y)$: mirrored back."""
    return g.flip(dims[0] if not isinstance(dims[0], int) else dims)


@rule("roll")
def roll(g: Any, x: Shape, shifts: Any, dims: Any = None) -> Any:
    r"""$\bar x = \text{roll}(\bar y)$: by as much the other way."""
    return g.roll([-one for one in shifts] if not isinstance(shifts, int) else -shifts, dims)


@rule("cat")
def cat(g: Any, tensors: Shape, dim: int = 0) -> Any:
    r"""$\bar x_i = $ its stretch of $\bar y$: each piece gets back the part that it became."""
    ends = torch.tensor([one.shape[dim] if one.shape != (0,) else 0 for one in tensors]).cumsum(0).tolist()
    pieces = zip([0, *ends], ends, tensors)
    return ([g.narrow(dim, begin, end - begin) if end > begin else g.new_zeros(x.shape) for begin, end, x in pieces],)


@rule("stack")
def stack(g: Any, tensors: Shape, dim: int = 0) -> Any:
    r"""$\bar x_i = \bar y_i$: each layer of the stack gets its own back."""
    return ([g.select(dim, place) for place in range(len(tensors))],)


@rule("tril")
def tril(g: Any, x: Shape, diagonal: int = 0) -> Any:
    r"""$\bar x = \text{tril}(\bar y)$: what was set to zero sends nothing."""
    return g.tril(diagonal)


@rule("triu")
def triu(g: Any, x: Shape, diagonal: int = 0) -> Any:
    r"""$\bar x = \text{triu}(\bar y)$: what was set to zero sends nothing."""
    return g.triu(diagonal)


@rule("repeat")
def repeat(g: Any, x: Shape, *sizes: Any) -> Any:
    r"""$\bar x = \sum \bar y$ over the copies: a value used again and again gathers all its gradients."""
    times = sizes[0] if not isinstance(sizes[0], int) else sizes
    shape = (1,) * (len(times) - x.ndim) + tuple(x.shape)
    pairs = [size for pair in zip(times, shape) for size in pair]
    return g.reshape(pairs).sum(list(range(0, len(pairs), 2))).reshape(x.shape)
