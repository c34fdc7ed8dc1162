"""Memory that kernels of a GPU take while they run: not seen on meta, estimated from shapes.

The rules were found by measuring single layers on an H200 (`benchmarks/gpu_plan.py --parts`). Libraries choose their
algorithms by shape and version, so these are estimates; what they are for is small beside what a model keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Rule = Callable[[tuple[Any, ...], Any], int]
_PROCESSORS, _PROCESSOR_THREADS, _BLOCK_THREADS = 132, 2048, 512  # multiprocessors of an H200, threads of each


def workspace_bytes(func: Any, args: tuple[Any, ...], result: Any) -> int:
    """Return the bytes that the kernel of an operation takes besides its outputs."""
    rule = _RULES.get(func._schema.name)
    return rule(args, result) if rule else 0


def _flash_backward(args: tuple[Any, ...], result: Any) -> int:
    """FlashAttention 2 sums the query's gradient in float32; keys of groups of heads get a gradient for each head."""
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    sums = 4 * batch * heads * _up(length, 128) * (_up(width, 32) + 1)
    per_head = 2 * batch * heads * key.shape[2] * width * query.element_size() if heads != key.shape[1] else 0
    return int(sums + per_head)


def _efficient_backward(args: tuple[Any, ...], result: Any) -> int:
    """The memory-efficient kernel keeps a number per row, and sums gradients of keys and values in float32."""
    query, key = args[1], args[2]
    rows = query.shape[0] * query.shape[1] * _up(query.shape[2], 32)
    return int(4 * rows + 2 * 4 * key.numel())


def _convolution(args: tuple[Any, ...], result: Any) -> int:
    return _channels_last_copies(args[0], args[1], result)


def _convolution_backward(args: tuple[Any, ...], result: Any) -> int:
    return _channels_last_copies(args[1], args[2], args[0])


def _channels_last_copies(value: Tensor, weight: Tensor, out: Tensor) -> int:
    """In float32 cuDNN computes with channels last, in copies of what it reads and writes, unless a kernel is 1×1."""
    is_point = all(size == 1 for size in weight.shape[2:]) and min(weight.shape[:2]) >= 8
    if value.dtype != torch.float32 or is_point or _is_channels_last(value):
        return 0
    return value.nbytes + weight.nbytes + out.nbytes


def _is_channels_last(value: Tensor) -> bool:
    return value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)


def _embedding_backward(args: tuple[Any, ...], result: Any) -> int:
    """Many indices are sorted, and their rows summed in float32."""
    gradient, indices = args[0], args[1]
    return int(4 * gradient.numel() + 5 * indices.nbytes) if indices.numel() > 3072 else 0


def _reduction(args: tuple[Any, ...], result: Tensor) -> int:
    """A sum over rows, as of a bias's gradient, is split over blocks, whose threads leave their parts in memory.

    By the launch sizes of torch's reduction kernel. A sum along the fastest dimension leaves few parts: not counted.
    """
    value, outputs = args[0], result.numel()
    sizes = [(stride, size, axis) for axis, (stride, size) in enumerate(zip(value.stride(), value.shape)) if size > 1]
    axes = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    reduced = {axis % value.dim() for axis in axes} or set(range(value.dim()))
    if not outputs or not sizes or min(sizes)[2] in reduced:
        return 0
    inputs, (_, fastest, _), *others = value.numel() // outputs, *sorted(sizes)
    vector = math.gcd(4, fastest, *(stride for stride, _, _ in others)) if min(sizes)[0] == 1 else 1
    threads, columns = _BLOCK_THREADS // vector, outputs // vector
    height = min(_power_of_2(inputs, threads), threads // min(_power_of_2(columns, threads), 32))
    width = min(_power_of_2(columns, threads), threads // height)
    values, grid = -(-inputs // height), -(-columns // width)  # for each thread; blocks side by side
    blocks = _PROCESSORS * (_PROCESSOR_THREADS // (width * height))
    if inputs < min(16 * height, 256) or values < 256 or grid > blocks:
        return 0
    parts = max(min(-(-blocks // grid), -(-values // 16)), -(-values // 256))
    return int(max(value.element_size(), 4) * outputs * parts * width * vector) if parts > 1 else 0


def _power_of_2(size: int, most: int) -> int:
    """The largest power of 2 that is neither above the size nor above `most`, itself one."""
    return min(1 << (size.bit_length() - 1), most) if size else 1


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


_RULES: dict[str, Rule] = {
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::mean": _reduction,
    "aten::sum": _reduction,
}
