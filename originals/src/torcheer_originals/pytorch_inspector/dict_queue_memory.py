"""PyTorch Inspector's operations on dictionaries, queues and memory."""

from __future__ import annotations

from collections.abc import Mapping
from queue import Empty
from typing import Any

import torch
from torch import Tensor


class DictOp:
    """Operations on dictionaries."""

    @staticmethod
    def split_dict(input_dict: Mapping[Any, Any], n: int) -> list[dict[Any, Any]]:
        """Return `n` dictionaries that take the entries in turn."""
        items = list(input_dict.items())
        return [dict(items[start::n]) for start in range(n)]

    @staticmethod
    def combine_args_kwargs(*args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return all arguments by name; those without one are `arg0`, `arg1` …"""
        return {f"arg{place}": arg for place, arg in enumerate(args)} | kwargs


class QueueOp:
    """Operations on queues."""

    @staticmethod
    def clear(q: Any) -> None:
        """Take everything out of a queue that is in it now."""
        try:
            while q is not None:
                q.get_nowait()
        except (Empty, OSError, EOFError, ValueError):  # the last three: the queue, or who wrote to it, is gone
            return


class MemoryOp:
    """Operations on the memory of devices."""

    @staticmethod
    def assignTo(tensor: Tensor, times_tensor_memory_size: float, same_device_only: bool) -> Tensor | None:
        """Return a GPU's tensor as it is where so many copies of it have room; else on the CPU, or None."""
        if tensor.is_cuda and _size(tensor) * times_tensor_memory_size < _free_bytes(tensor):
            return tensor
        return None if same_device_only else tensor.cpu()

    @staticmethod
    def enoughMemory_CUDA(tensor: Tensor) -> bool:
        """Return whether a copy of a GPU's tensor has room there; True for other devices."""
        return not tensor.is_cuda or _size(tensor) < _free_bytes(tensor)


def _size(tensor: Tensor) -> int:
    return tensor.element_size() * tensor.nelement()


def _free_bytes(tensor: Tensor) -> int:
    return int(torch.cuda.mem_get_info(tensor.device)[0])
