"""Rows and samples still on a GPU: queued, without synchronizing, until copied."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from torcheer.records import Sample
from torcheer.runlog.media.media_intake import Media
from torcheer.tap.device_copies import host_copy

_MOST_WAITING, _MOST_WAITING_BYTES = 1000, 256 << 20  # rows and samples; bytes of samples


class RowSink(Protocol):
    """Where rows and samples go: a `Host`, or the log of a session."""

    @property
    def closed(self) -> bool:
        """True while nothing is taken."""

    def row(self, table: str, cells: Mapping[str, Any]) -> None:
        """Take a row."""

    def sample(self, sample: Sample, record: Mapping[str, Any], when: float) -> None:
        """Take a sample."""


class MetricRows:
    """Hands rows and samples to a host in order, each once all of its numbers are on the CPU."""

    def __init__(
        self, host: RowSink, see: Callable[[str, Mapping[str, Any]], None] = lambda table, cells: None
    ) -> None:
        """`see` is told of each row, too."""
        self._host, self._see = host, see
        self.waiting = deque[tuple[Callable[[], None], Any]]()  # what to do after a CUDA event, that of the last copy
        self._waiting_bytes = 0  # of samples since nothing waited

    def add(self, table: str, cells: dict[str, Any]) -> None:
        """Queue a row; takes ownership of `cells`."""
        event = None
        for name, value in cells.items():
            if isinstance(value, Tensor):
                cells[name], event = _fetch(value, event)
        if event is None and not self.waiting:
            self._row(table, cells)
        else:
            self._queue(partial(self._row, table, cells), event)

    def _row(self, table: str, cells: dict[str, Any]) -> None:
        self._host.row(table, cells)
        self._see(table, cells)

    def add_sample(self, media: Media, step: int) -> None:
        """Queue a copy of something that a person logged."""
        array, event = media.array, None
        if not isinstance(array, Tensor):
            array = np.array(array)
        elif array.is_cuda:
            array, event = _fetch(array, None)
        else:
            array = array.detach().to("cpu", copy=True)
        if array is not None:  # None: a CUDA graph is being captured
            sample = Sample(step, media.name, media.kind, media.item, array)
            self._queue(partial(self._host.sample, sample, media.record, time.time()), event, array.nbytes)

    def _queue(self, deliver: Callable[[], None], event: Any, size_bytes: int = 0) -> None:
        if event is None and not self.waiting:
            deliver()
            return
        if self._host.closed:
            return
        self.waiting.append((deliver, event))
        self._waiting_bytes += size_bytes
        self.flush(wait=len(self.waiting) > _MOST_WAITING or self._waiting_bytes > _MOST_WAITING_BYTES)

    def flush(self, wait: bool = False) -> None:
        """Hand over what has been copied; with `wait`, wait for all of it."""
        while self.waiting:
            deliver, event = self.waiting[0]
            if event is not None and not wait and not event.query():
                return
            if event is not None:
                event.synchronize()
            self.waiting.popleft()
            deliver()
        self._waiting_bytes = 0


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
