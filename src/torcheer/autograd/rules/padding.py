"""Padding, sliding windows and pixel shuffles.

A pixel that is copied gets the sum of its copies' gradients.
"""

from __future__ import annotations

from typing import Any

import torch

from torcheer.autograd.rules.rule_table import Shape, rule

functional = torch.nn.functional


@rule("pad", "constant_pad_nd")
def pad(g: Any, x: Shape, pad: Any, mode: Any = "constant", value: Any = None) -> Any:
    r"""$\bar x = $ the inner part of $\bar y$: a border of copies adds its gradient to the copied entries."""
    if mode in ("reflect", "replicate", "circular"):
        return _fold_border(g, x, pad, mode)
    return functional.pad(g, [-width for width in pad])


def _fold_border(g: Any, x: Any, pad: Any, mode: str) -> Any:
    """Add the gradient of a border to the entries it copied.

    Along each axis the indices of the entries are padded the same way, which tells what each position copied.
    """
    for place in range(0, len(pad), 2):
        axis = x.ndim - 1 - place // 2
        with torch.no_grad():
            numbers = torch.arange(x.shape[axis], dtype=torch.float64, device=g.device)
            sources = functional.pad(numbers[None, None], list(pad[place : place + 2]), mode)[0, 0].long()
        size = [*g.shape[:axis], x.shape[axis], *g.shape[axis + 1 :]]
        g = g.new_zeros(size).index_add(axis, sources, g)
    return g


@rule("unfold")
def unfold(g: Any, x: Shape, dimension: int, size: int, step: int) -> Any:
    r"""$\bar x_i = \sum \bar y$ over the windows that show it: windows overlap, so their gradients add up."""
    places = torch.arange(x.shape.numel(), device=g.device).view(x.shape).unfold(dimension, size, step)
    return g.new_zeros(x.shape.numel()).index_add(0, places.reshape(-1), g.reshape(-1)).reshape(x.shape)


@rule("im2col")
def im2col(g: Any, x: Shape, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    r"""$\bar X = \text{fold}(\bar Y)$: the windows return to their positions, and add up where they overlap."""
    return functional.fold(g, x.shape[-2:], kernel_size, dilation, padding, stride)


@rule("col2im")
def col2im(g: Any, x: Shape, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    r"""$\bar X = \text{unfold}(\bar Y)$: each window gets the gradient at its position."""
    return functional.unfold(g, kernel_size, dilation, padding, stride)


@rule("pixel_shuffle")
def pixel_shuffle(g: Any, x: Shape, upscale_factor: int) -> Any:
    r"""$\bar x = \text{pixel\_unshuffle}(\bar y)$: the pixels return to their channels."""
    return functional.pixel_unshuffle(g, upscale_factor)


@rule("pixel_unshuffle")
def pixel_unshuffle(g: Any, x: Shape, downscale_factor: int) -> Any:
    r"""$\bar x = \text{pixel\_shuffle}(\bar y)$: the channels return to their pixels."""
    return functional.pixel_shuffle(g, downscale_factor)


@rule("channel_shuffle")
def channel_shuffle(g: Any, x: Shape, groups: int) -> Any:
    r"""$\bar x = \text{channel\_shuffle}(\bar y)$ with as many groups as a group had channels: it undoes
    the shuffle."""
    return functional.channel_shuffle(g, x.shape[1] // groups)
