"""A batch of samples as one record: sums and kept numbers as they lie in memory, and a row of text for each.

The payload is three tables: when each value was taken (`MOMENTS`), the sums of its parts, and its kept numbers, each
row of which begins at a multiple of `ALIGNMENT`. The rows' text is made once for each key: a batch needs no headers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import MemoryCopy, Offer, address_of, bytes_of
from torcheer.samples import Key

SUMS: Final = 8  # total, squares, count of nonzero numbers, of NaN, least, greatest, count of those not finite,
# and whether any number of the tensor, also of those not summed up, is not finite
PARTS: Final = 16  # of a value, each summed up for itself
MOMENTS: Final = 3  # time, count of the key's values so far, step
ALIGNMENT: Final = 16
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class BatchRow:
    """What all values of a key have in common; `of` makes one."""

    key: Key
    kept: int  # numbers that are sent
    size_bytes: int  # of those
    sampled: int  # every n-th of the numbers that were summed up is kept
    text: str  # the same and more, as JSON

    @classmethod
    def of(
        cls, key: Key, *, type: str, device: str, whole: Sequence[int], stride: int, numbers: int, sampled: int,
        flags: Sequence[str] = (),
    ) -> BatchRow:  # fmt: skip
        """Every `stride`-th number of a tensor was summed up, `numbers` in all; `flags`: true fields of `Delivery`."""
        row = {"layer": key[0], "variable": key[1], "type": type, "device": device, "whole": list(whole),
               "stride": stride, "numbers": numbers, "sampled": sampled, "flags": list(flags)}  # fmt: skip
        kept = -(-numbers // sampled)
        return cls(key, kept, bytes_of(type, (kept,)), sampled, json.dumps(row, separators=(",", ":")))


def aligned(size_bytes: int) -> int:
    """The bytes that a row of so many takes."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Values to be sent as one record, in the order they were taken."""

    rows: list[BatchRow]
    message: str
    moments: MemoryCopy
    sums: MemoryCopy
    samples: MemoryCopy

    @property
    def size_bytes(self) -> int:
        """Bytes of the payload."""
        return self.moments.size_bytes + self.sums.size_bytes + self.samples.size_bytes

    def text(self) -> bytes:
        """The record's header."""
        rows = ",".join([row.text for row in self.rows])
        return f'{{"message":{json.dumps(self.message)},"rows":[{rows}]}}'.encode()

    def fill(self, view: memoryview) -> None:
        """Write the payload."""
        address = address_of(view)
        for copy in (self.moments, self.sums, self.samples):
            copy.write_at(address)
            address += copy.size_bytes

    def offers(self) -> list[Offer]:
        """The same values singly, where they cannot be sent as one record."""
        payload = memoryview(bytearray(self.size_bytes))
        self.fill(payload)
        return [
            (header, numbers.nbytes, partial(_write, numbers))
            for header, numbers in split_batch(json.loads(self.text()), payload)
        ]


def _write(numbers: memoryview, view: memoryview) -> None:
    view[: numbers.nbytes] = numbers


def split_batch(description: dict[str, Any], payload: Any) -> list[tuple[dict[str, Any], memoryview]]:
    """The header and the bytes of each value in a record of a batch."""
    rows, view = description["rows"], memoryview(payload)
    moments, place = _table(view, 0, len(rows), MOMENTS)
    parts, place = _table(view, place, len(rows), PARTS * SUMS)
    values = []
    for row, moment, sums in zip(rows, moments.tolist(), _sums(parts.reshape(-1, PARTS, SUMS))):
        header = _header(row, moment, sums)
        if description["message"]:
            header["message"] = description["message"]
        end = place + bytes_of(header["type"], tuple(header["shape"]))
        values.append((header, view[place:end]))
        place += aligned(end - place)
    return values


def _table(view: memoryview, place: int, rows: int, columns: int) -> tuple[NDArray[np.float64], int]:
    """A table of numbers in the payload, and the place behind it."""
    end = place + rows * columns * _NUMBER_BYTES
    return np.frombuffer(view[place:end], "<f8").reshape(rows, columns), end


def _sums(parts: NDArray[np.float64]) -> list[list[float]]:
    """The sums of each value: of its finite numbers, the norm in place of the squares."""
    sums = parts.sum(1)
    sums[:, 1] = np.sqrt(sums[:, 1])
    sums[:, 4], sums[:, 5] = parts[:, :, 4].min(1), parts[:, :, 5].max(1)
    return [list(row) for row in sums.tolist()]


def _header(row: dict[str, Any], moment: list[float], sums: list[float]) -> dict[str, Any]:
    stride, numbers, sampled = row["stride"], row["numbers"], row["sampled"]
    time_secs, count, step = moment
    header = {name: row[name] for name in ("layer", "variable", "type", "device", "whole")}
    header |= {"item": -1, "step": int(step), "count": int(count), "time_secs": time_secs, "stride": stride * sampled}
    header["shape"] = row["whole"] if stride * sampled == 1 else [-(-numbers // sampled)]
    header["sums"] = [numbers, stride, *sums[:-1]]
    if stride > 1:
        header["finite"] = not sums[-2] and not sums[-1]
    return header | dict.fromkeys(row["flags"], True)
