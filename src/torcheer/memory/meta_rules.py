"""Operations whose rule for shapes alone refuses what they take for real, and whether one that failed is such a one."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

GROUPED: Final = "aten._grouped_mm.default"  # on meta it takes bfloat16 alone; a CPU and a GPU take float32, too
_MOST_NUMBERS: Final = 1 << 24  # of arguments that are made for real
_ALIGNMENT: Final = 16  # bytes: where each row of the result begins


def grouped_matmul(
    first: Tensor, second: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Return what `torch._grouped_mm` does, as a meta tensor: products of groups of rows, of columns, or of batches."""
    shapes = first.shape, second.shape
    groups, is_ragged = (offs.shape[0] if offs is not None else 0), (first.dim() == 2, second.dim() == 2)
    size = {
        (True, True): (groups, first.shape[0], second.shape[-1]),  # the inner axis is split into groups
        (True, False): (first.shape[0], second.shape[-1]),
        (False, True): (first.shape[1], second.shape[-1]),
        (False, False): (first.shape[0], first.shape[-2], second.shape[-1]),
    }[is_ragged]
    if first.shape[-1] != second.shape[-2]:
        raise RuntimeError(
            f"_grouped_mm: contraction dimension of {tuple(shapes[0])} and {tuple(shapes[1])} must match"
        )
    dtype = out_dtype or first.dtype
    step = _ALIGNMENT // dtype.itemsize
    row = -(-size[-1] // step) * step
    stride = (size[-2] * row, row, 1)[-len(size) :]
    return torch.empty_strided(size, stride, dtype=dtype, device="meta")


def runs_for_real(func: Any, args: Any, kwargs: Any) -> bool | None:
    """Whether an operation that failed on meta runs on zeros of the same shapes; None where these are too large."""
    try:
        return (func(*_zeros(args), **_zeros(kwargs)), True)[1]
    except _TooLarge:
        return None
    except Exception:  # whatever it is: it fails for real, too
        return False


class _TooLarge(Exception):
    pass


def _zeros(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.untyped_storage().nbytes() // value.element_size() > _MOST_NUMBERS:
            raise _TooLarge
        size = sum((length - 1) * stride for length, stride in zip(value.shape, value.stride(), strict=True)) + 1
        return torch.zeros(max(size, 1), dtype=value.dtype).as_strided(value.shape, value.stride())
    if isinstance(value, dict):
        return {key: _zeros(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_zeros(item) for item in value])
    return torch.device("cpu") if isinstance(value, torch.device) else value
