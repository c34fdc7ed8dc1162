"""Table rows with numbers still on a GPU: queued, without synchronizing, until copied."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from torch import Tensor

from torcheer.host.host import Host
from torcheer.tap.device_copies import host_copy

_MOST_WAITING: Final = 1000


class MetricRows:
    """Adds rows to a host's tables in order, each once all of its numbers are on the CPU."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting = deque[tuple[str, dict[str, Any], Any]]()  # table, cells, CUDA event of the last copy

    def add(self, table: str, cells: dict[str, Any]) -> None:
        """Queue a row; takes ownership of `cells`."""
        event = None
        for name, value in cells.items():
            if isinstance(value, Tensor):
                cells[name], event = _fetch(value, event)
        if event is None and not self._waiting:
            self._host.row(table, cells)
            return
        if self._host.closed:
            return
        self._waiting.append((table, cells, event))
        self.flush(wait=len(self._waiting) > _MOST_WAITING)

    def flush(self, wait: bool = False) -> None:
        """Add the rows whose numbers have been copied; with `wait`, wait for all of them."""
        while self._waiting:
            table, cells, event = self._waiting[0]
            if event is not None and not wait and not event.query():
                return
            if event is not None:
                event.synchronize()
            self._waiting.popleft()
            self._host.row(table, cells)


def _fetch(tensor: Tensor, event: Any) -> tuple[Any, Any]:
    """Copy a tensor to the CPU, from a GPU without blocking.

    The copy and the event that marks its end.
    """
    if tensor.is_meta:
        return None, event  # meta tensors have no values
    if not tensor.is_cuda:
        return (tensor.item() if tensor.numel() == 1 else tensor.detach().clone()), event
    copy = host_copy(tensor)
    return (None, event) if copy is None else (copy.tensor, copy.event)
