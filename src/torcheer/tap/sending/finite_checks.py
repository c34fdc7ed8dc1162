"""Values that are not finite, noticed where they are sent: a loop that stops for one cannot wait for the child."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from torcheer.encoding import Offer, address_of, array_of, from_bytes
from torcheer.records import Sample
from torcheer.samples import SUMS, Delivery, Key, SampleBatch, has_nonfinite
from torcheer.tap.tensor_copies import GroupSink, all_finite
from torcheer.vocabulary.array_statistics import NONFINITE, Statistics


class NonfiniteValues:
    """Hands the values that are not finite to `found`; where that is None, nothing is looked at."""

    def __init__(self) -> None:
        self.found: Callable[[Delivery], None] | None = None

    def check(self, tensor: Tensor, key: Key, step: int) -> None:
        """Look at a value in the host's memory, at all of its numbers."""
        if self.found is not None and not all_finite(tensor.detach()):
            self._hand_over(key, step, array_of(tensor))

    def check_number(self, number: float, name: str, step: int) -> None:
        """Look at a metric."""
        if self.found is not None and not math.isfinite(number):
            self._hand_over((name, "metric"), step, np.array(number))

    def check_record(self, header: dict[str, Any], payload: Callable[[], memoryview]) -> None:
        """Look at a value that has come from a device: its sums, or its numbers where there are none."""
        if self.found is None:
            return
        key, step = (header["layer"], header["variable"]), header["step"]
        if "sums" in header:
            if has_nonfinite(header):
                stride, *row = header["sums"]
                summary = Statistics.of_row(row, stride)
                sample = Sample(step, *key, array=np.empty(0, np.float32))
                self.found(Delivery(sample, time.time(), finite=header.get("finite"), summary=summary))
            return
        array = from_bytes(header["type"], tuple(header["shape"]), payload())
        numbers = Delivery(Sample(step, *key, array=array), type=header["type"]).sample.array
        numbers = numbers if numbers.dtype.kind in "biufc" else numbers.astype(np.float32)
        if not np.isfinite(numbers).all():
            self._hand_over(key, step, numbers)

    def _hand_over(self, key: Key, step: int, array: Any) -> None:
        assert self.found is not None
        self.found(Delivery(Sample(step, *key, array=array), time.time()))


class CheckedArrivals:
    """Looks at what has arrived from a device on its way to a sink."""

    def __init__(self, link: GroupSink, nonfinite: NonfiniteValues) -> None:
        self._link, self._nonfinite = link, nonfinite

    def offer(self, header: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Pass a value on."""
        self._check((header, size_bytes, fill))
        return self._link.offer(header, size_bytes, fill)

    def offer_together(self, offers: Sequence[Offer], /) -> bool:
        """Pass several values on; those that are refused are offered singly, and looked at then."""
        is_sent = self._link.offer_together(offers)
        if is_sent and self._nonfinite.found is not None:
            for value in offers:
                self._check(value)
        return is_sent

    def offer_batch(self, batch: SampleBatch, /) -> bool:
        """Pass a batch on; its values are offered singly, and looked at then, where it is refused."""
        is_sent = self._link.offer_batch(batch)
        if is_sent and self._nonfinite.found is not None and _has_nonfinite(batch):
            for value in batch.offers():
                self._check(value)
        return is_sent

    def refuse(self, header: dict[str, Any], /) -> bool:
        """Pass on that a value is dropped."""
        return self._link.refuse(header)

    def _check(self, value: Offer) -> None:
        header, size_bytes, fill = value

        def payload() -> memoryview:
            fill(view := memoryview(bytearray(size_bytes)))
            return view

        self._nonfinite.check_record(header, payload)


def _has_nonfinite(batch: SampleBatch) -> bool:
    """Whether any value of a batch has a number that is not finite: its sums count them."""
    sums = bytearray(batch.sums.size_bytes)
    batch.sums.write_at(address_of(memoryview(sums)))
    return bool(np.frombuffer(sums, "<f8").reshape(-1, SUMS)[:, NONFINITE:].any())
