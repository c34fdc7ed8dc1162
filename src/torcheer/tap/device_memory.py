"""How much memory torch holds on each GPU."""

from __future__ import annotations

import torch


def device_memory() -> dict[str, float]:
    """Gigabytes that torch has allocated and reserved, by column; nothing before CUDA is used. Does not synchronise."""
    cells: dict[str, float] = {}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for device in range(torch.cuda.device_count()):
            if reserved_bytes := torch.cuda.memory_reserved(device):
                cells[f"cuda:{device} allocated GB"] = round(torch.cuda.memory_allocated(device) / 1e9, 3)
                cells[f"cuda:{device} reserved GB"] = round(reserved_bytes / 1e9, 3)
    return cells
