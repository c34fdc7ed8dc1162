"""A kernel that sums up many tensors of a GPU with one launch, from a table of their addresses; it needs triton.

Without it, or without the C compiler that it starts, values are reduced by torch's own operations.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from torcheer.encoding import type_name
from torcheer.samples import PARTS, SUMS
from torcheer.tap.reduction.reduction_batch import WIDTH
from torcheer.vocabulary.dtypes import FLOATS, torch_types

COLUMNS = 9  # of the table: address, address of what is subtracted (0: nothing), numbers that are summed up, their
# stride, stride of those that are kept, how many are, their place in `samples`, numbers to be checked (0: none), row
KINDS = torch_types(row for row in FLOATS.values() if row.has_arithmetic and row.bytes <= 4)
_BLOCK = WIDTH // PARTS
_CHECKED_NUMBERS, _MOST_PARTS = 1 << 16, 512  # numbers that a program checks for being finite; programs for a tensor


@cache
def can_fuse(device: torch.device, kind: torch.dtype) -> bool:
    """Whether the kernel runs on a device; compiles it for a type of numbers."""
    if device.type != "cuda" or kind not in KINDS:
        return False
    try:
        numbers = torch.zeros(1, dtype=kind, device=device)
        table = table_on(device, [numbers.data_ptr(), 0, 1, 1, 1, 1, 0, 1, 0])
        sum_rows(table, torch.zeros(1, PARTS, SUMS, dtype=torch.float64, device=device), torch.empty_like(numbers), 1)
    except Exception:  # no triton, no C compiler, or a device that it does not know
        return False
    return True


def table_on(device: torch.device, entries: list[int]) -> Tensor:
    """The table of addresses on a device, without waiting for it."""
    pinned = torch.empty(len(entries), dtype=torch.int64, pin_memory=device.type == "cuda")
    pinned.numpy()[:] = entries
    return pinned.to(device, non_blocking=True)


def sum_rows(table: Tensor, sums: Tensor, samples: Tensor, checked: int) -> None:
    """Sum up the tensors of a table into the rows of `sums`, and copy every n-th of their numbers into `samples`.

    `checked` is the largest count of numbers to be checked for being finite; a row's mark of that must be zero before.
    """
    programs, rows, kind = _programs(), table.numel() // COLUMNS, type_name(samples.dtype)
    grid = (rows, PARTS + min(-(-checked // _CHECKED_NUMBERS), _MOST_PARTS))
    if table.device.index == torch.cuda.current_device():
        programs.sum_up[grid](table, sums, samples, programs.KINDS[kind], _BLOCK, PARTS, num_warps=8)
    else:
        with torch.cuda.device(table.device):
            programs.sum_up[grid](table, sums, samples, programs.KINDS[kind], _BLOCK, PARTS, num_warps=8)


@cache
def _programs() -> Any:
    """The programs; triton is imported when they are first needed."""
    return import_module("torcheer.tap.reduction.triton_programs")
