"""The batch that is being filled with values of a GPU."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from torcheer.tap.reduction.fused_batch import FusedBatch, FusedValue
from torcheer.tap.reduction.outbox import Outbox
from torcheer.tap.reduction.reduction_batch import raw_stream


class FusedValues:
    """Fills one batch after the other; one that is full, or that other values interrupt, is fetched."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._batch: FusedBatch | None = None
        self._order = 0  # of the batch among all that is sent
        self.message = ""  # what the user wants to see beside the values

    @property
    def is_open(self) -> bool:
        """Whether a batch is being filled."""
        return self._batch is not None

    def add(self, values: list[FusedValue]) -> None:
        """Sum up values of one device."""
        while values:
            batch = self._open(values[0].tensor.device)
            added = batch.add(values)
            values = values[added:]
            if values or batch.is_full:
                self.close()

    def _open(self, device: torch.device) -> FusedBatch:
        if self._batch is None or not self._batch.fits(device, self.message):
            self.close()
            self._batch, self._order = FusedBatch(device, self.message), self._outbox.next_order()
        return self._batch

    def close(self, only_nonfinite: bool = False) -> None:
        """Start to fetch the batch; `only_nonfinite`: it is sent where a number in it is not finite."""
        batch, self._batch = self._batch, None
        if batch is not None:
            with torch.cuda.stream(batch.stream if raw_stream(batch.device) != batch.raw else None):
                self._outbox.fetch(batch.results(), partial(self._arrive, self._order, batch, only_nonfinite))

    def _arrive(self, order: int, batch: FusedBatch, only_nonfinite: bool, sums: Tensor, samples: Tensor) -> None:
        if not (only_nonfinite and batch.is_finite(sums)):
            self._outbox.add(order, batch.record(sums, samples))
