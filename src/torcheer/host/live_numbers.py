"""Rows of numbers, of which some may still be on a GPU: nobody waits for them."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import torch
from torch import Tensor

from torcheer.host.host import Host

_MOST_WAITING: Final = 1000


class Numbers:
    """Adds rows to a host's tables, in their order, each when all of its numbers have come."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting = deque[tuple[str, dict[str, Any], Any]]()  # table, cells, the event after which they are there

    def add(self, table: str, cells: dict[str, Any]) -> None:
        """Add a row; its cells are ours from now on."""
        event = None
        for name, value in cells.items():
            if isinstance(value, Tensor):
                cells[name], event = _fetched(value, event)
        if event is None and not self._waiting:
            self._host.row(table, cells)
            return
        if self._host.closed:
            return
        self._waiting.append((table, cells, event))
        self.flush(wait=len(self._waiting) > _MOST_WAITING)

    def flush(self, wait: bool = False) -> None:
        """Add the rows whose numbers have come; with `wait` all of them."""
        while self._waiting:
            table, cells, event = self._waiting[0]
            if event is not None and not wait and not event.query():
                return
            if event is not None:
                event.synchronize()
            self._waiting.popleft()
            self._host.row(table, cells)


def _fetched(tensor: Tensor, event: Any) -> tuple[Any, Any]:
    """A tensor here, or on its way, and the event that says so."""
    if tensor.is_meta:
        return None, event  # it has no number
    if not tensor.is_cuda:
        return (tensor.item() if tensor.numel() == 1 else tensor.detach().clone()), event
    tensor = tensor.detach()
    cuda: Any = torch.cuda  # it is not all annotated
    if cuda.is_current_stream_capturing():
        return None, event
    here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    here.copy_(tensor, non_blocking=True)
    event = cuda.Event()
    event.record()
    return here, event
