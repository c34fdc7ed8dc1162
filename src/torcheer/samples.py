"""Records around a Sample in the watch.

As sent to the child, its statistics, alerts and delivery counts.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import MemoryCopy, Offer, address_of, bytes_of, crc32, numbers_of, real_numbers
from torcheer.public_names import PublicClass
from torcheer.records import Sample
from torcheer.vocabulary.array_statistics import (
    NONFINITE,
    SUMMED,
    Statistics,
    merge_rows,
    statistics_of,
    statistics_of_each,
)

Key = tuple[str, str]  # layer, variable
SendMessage = Callable[[dict[str, Any]], object]  # sends one message to the training process: {"kind": "alert", …}

DISK_FULL = "disk_full"  # an alert like those of rules, for failed writes
NAN_INF = "nan_inf"  # the rule about NaN and infinities; a live view finds those it shows without a watch
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_NAMED: Final = 5  # keys whose dropped counts are listed

SUMS: Final = len(SUMMED) + 1  # those, and whether any number of the tensor, also one not summed up, is not finite
PARTS: Final = 16  # of a value, each summed up for itself
MOMENTS: Final = 3  # time, count of the key's values so far, step
ALIGNMENT: Final = 16
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Delivery:
    """One sample as the monitor process receives it, with its metadata."""

    sample: Sample  # its array is numpy's, and the child's own copy
    time_secs: float = 0.0  # when it was taken, since 1970
    device: str = "cpu"  # where it lived: "cuda:0"
    message: str = ""  # what the user wants to see beside it: "epoch:3"
    count: int = 0  # how often its key was seen, watched or not
    stride: int = 1  # every n-th number of it was sent
    whole: tuple[int, ...] = ()  # its shape, where only a part was sent
    finite: bool | None = None  # whether all of its numbers are, where only a part was sent
    summary: Statistics | None = None  # made on its own device; the array is a sample then, if there is one
    frozen: bool = False  # whether it is a weight that takes no gradient (`requires_grad=False`)
    scaled: bool = False  # whether a GradScaler had scaled the gradients of this update
    media: dict[str, Any] | None = None  # what it means, if a person logged it: an image, a text (`runlog.media`)
    type: str = ""  # its dtype in the training process, also one that numpy lacks: "bfloat16"

    def __post_init__(self) -> None:
        """Convert raw bits to numbers: as integers they would give wrong statistics."""
        array = self.sample.array
        if self.type and (numbers := numbers_of(self.type, array)) is not array:
            object.__setattr__(self, "sample", replace(self.sample, array=numbers))

    @property
    def key(self) -> tuple[str, str]:
        """Return (layer, variable), the key of a series over time."""
        return self.sample.layer, self.sample.variable


def summarise(delivery: Delivery) -> Statistics:
    """The statistics of a value; those sent with it, where it was reduced on its device."""
    if delivery.summary is None:
        return statistics_of(delivery.sample.array, delivery.stride)
    if delivery.summary.histogram or not delivery.sample.array.size:
        return delivery.summary
    return delivery.summary.with_sample(
        real_numbers(delivery.sample.array.reshape(-1))
    )  # some of its numbers were sent along


def summarise_together(deliveries: Sequence[Delivery]) -> list[Statistics]:
    """The same of many values, with few operations for all small ones."""
    unknown = [delivery for delivery in deliveries if delivery.summary is None]
    known = iter(statistics_of_each([each.sample.array for each in unknown], [each.stride for each in unknown]))
    return [next(known) if delivery.summary is None else summarise(delivery) for delivery in deliveries]


def has_nonfinite(header: dict[str, Any]) -> bool:
    """Whether a record says that a number of its value is not finite."""
    sums = header.get("sums")  # the stride, and a row of SUMMED
    return header.get("finite") is False or (sums is not None and any(sums[1 + NONFINITE :]))


def bits_hash(array: Any, stride: int) -> int:
    """A checksum of an array's bits, every `stride`-th number of a tensor; the stride stands above its 32 bits."""
    return crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8)) | stride << 32


@dataclass(frozen=True, slots=True)
class BatchRow:
    """What all values of a key have in common; `of` makes one."""

    key: Key
    kept: int  # numbers that are sent
    size_bytes: int  # of those
    batch_bytes: int  # that they take in a batch
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
        size_bytes, text = bytes_of(type, (kept,)), json.dumps(row, separators=(",", ":"))
        return cls(key, kept, size_bytes, aligned(size_bytes), sampled, text)


def aligned(size_bytes: int) -> int:
    """The bytes that a row of so many takes."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Values of a device to be sent as one record, in the order they were taken.

    The payload is three tables: when each was taken (`MOMENTS`), the sums of its parts, and its kept numbers, each row
    of which begins at a multiple of `ALIGNMENT`. The rows' text is made once for each key: a batch needs no headers.
    """

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
    parts = parts.reshape(-1, PARTS, SUMS)
    merged, is_unsure = merge_rows(parts[..., :-1]), parts[..., -1].max(1) > 0
    for row, moment, sums, unsure in zip(rows, moments.tolist(), merged.tolist(), is_unsure.tolist()):
        header = _header(row, moment, sums, unsure)
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


def _header(row: dict[str, Any], moment: list[float], sums: list[float], unsure: bool) -> dict[str, Any]:
    stride, numbers, sampled = row["stride"], row["numbers"], row["sampled"]
    time_secs, count, step = moment
    header = {name: row[name] for name in ("layer", "variable", "type", "device", "whole")}
    header |= {"item": -1, "step": int(step), "count": int(count), "time_secs": time_secs, "stride": stride * sampled}
    header["shape"] = row["whole"] if stride * sampled == 1 else [-(-numbers // sampled)]
    header["sums"] = [stride, *sums]
    if stride > 1:
        header["finite"] = not (has_nonfinite(header) or unsure)
    return header | dict.fromkeys(row["flags"], True)


@dataclass(frozen=True, slots=True)
class Alert(metaclass=PublicClass):
    """A warning about a value of the training run.

    - `rule`: the name of the rule: "dead_relu".
    - `layer`: the module's path, "features.0"; empty for the run as a whole.
    - `variable`: "output", "grad", "weight", "loss" …
    - `step`: the step at which it was detected.
    - `since`: the first step with the problem.
    - `what`: what was seen: "98% of the outputs are zero".
    - `advice`: what to try: "lower the learning rate, or use a leaky ReLU"; empty where `what` says everything.
    - `severity`: "error": the run is lost; "warning"; "note": it may be intended.
    - `values`: the numbers behind it, by name.
    - `id`: writer and number in the run's log; empty without a log.
    - `follows`: the alert that may explain it: "exploding_gradient at step 7"; empty for one that stands for itself.
    - `place`: the class of the layer's module and the line of the program that calls it: "ReLU, net.py:14".
    """

    rule: str
    layer: str
    variable: str
    step: int
    since: int
    what: str
    advice: str
    severity: str = "warning"
    values: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    follows: str = ""
    place: str = ""

    def __str__(self) -> str:
        if not self.advice:
            return self.what
        where = f"{self.layer} ({self.variable})" if self.layer else self.variable
        if self.layer and self.place:
            where = f"{self.layer} ({self.place}), {self.variable}"
        since = f", since step {self.since}" if self.since != self.step else ""
        follows = f"; it may follow from {self.follows}" if self.follows else ""
        return f"{self.rule} at step {self.step}: {where}: {self.what}{since}{follows}. Try: {self.advice}."


def place_in(places: Mapping[str, str], layer: str, variable: str) -> str:
    """The place of a layer's module, or of the module that a weight or one of several outputs belongs to; "" if none.

    "features.3" for "features.3:2", "features.3.weight", "features.3[0]".
    """
    if variable == "metric":
        return ""
    name = layer.partition(":")[0].partition("[")[0]
    while name and name not in places:
        name = name.rpartition(".")[0]
    return places.get(name, "")


@dataclass(frozen=True, slots=True)
class Nonfinite:
    """How many numbers of a value are NaN or infinite, and what is said of it."""

    nans: int
    infs: int
    count: int  # of all its numbers

    @property
    def text(self) -> str:
        """What is wrong: "of 640 numbers 12 NaN"."""
        if self.count == 1:
            return "it is NaN" if self.nans else "it is infinite"
        parts = [f"{number:,} {name}" for number, name in ((self.nans, "NaN"), (self.infs, "infinite")) if number]
        if not parts:
            return f"some of its numbers are NaN or infinite, though none of the {self.count:,} that were sent"
        return f"of {self.count:,} numbers {' and '.join(parts)}"

    @property
    def values(self) -> dict[str, Any]:
        """The numbers of an alert."""
        return {"nans": self.nans, "infs": self.infs, "count": self.count}

    @staticmethod
    def advice(variable: str) -> str:
        """What to try."""
        if variable == "input":
            return "look at the data and at what prepares them: missing values, a division by zero; drop or fill those"
        where = "in it and in the layers before it" if variable == "output" else "in what it is computed from"
        return (
            f"look {where} for a division by zero, a log of zero or of a negative number, or an overflow; "
            "lower the learning rate; clip the gradients"
        )


def began_after(last_look: int | None, step: int, variable: str) -> str:
    """Say that a fault may have begun before it was seen; "" where the step before was looked at, too."""
    if last_look is None:
        return f"; step {step} is the first that was looked at, so it may have begun before" if step > 0 else ""
    if last_look >= step - 1:
        return ""
    elsewhere = "" if variable == "metric" else ", and in another layer"
    return f"; it may have begun after step {last_look}, the last look before{elsewhere}"


def layers_unseen(last_look: int | None, step: int) -> str:
    """Say of a number that was logged that the layers were not looked at in its step; "" where none ever were."""
    if last_look is None or last_look == step:
        return ""
    return f"; the layers were looked at last in step {last_look}, so the one where it began is not known"


def disk_full(error: Exception, folder: Path, variable: str, step: int) -> Alert | None:
    """Make the alert for a failed write if the disk is full; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    text = f"{os.strerror(error.errno)} in {folder}: it ends here"
    advice = "make room, or watch to another folder; statistics, rules and training go on"
    return Alert(DISK_FULL, "", variable, step, step, text, advice)


@dataclass(frozen=True, slots=True)
class Account:
    """Counts of samples by outcome.

    After `stop`, offered == handled + what was dropped + lost + damaged.
    """

    offered: int = 0
    handled: int = 0  # processed by the child
    dropped: dict[Key, int] = field(default_factory=dict)  # per key: refused, no room, overwritten unread
    lost: int = 0  # sent, but the child died or was stopped before it processed them
    damaged: int = 0  # received by the child with a wrong checksum
    restarts: int = 0
    written: int | None = None  # of those handled, how many are in the log; None before its end, or without one

    @property
    def missing(self) -> str:
        """Describe the values that were not delivered; "" if all were."""
        parts = [f"{self.lost + self.damaged:,} lost"] if self.lost or self.damaged else []
        if self.written is not None and self.written < self.handled:
            parts.append(f"{self.handled - self.written:,} not written")
        if self.dropped:
            worst = sorted(self.dropped.items(), key=lambda item: -item[1])
            named = ", ".join(f"{layer} ({variable}) {count:,}" for (layer, variable), count in worst[:_NAMED])
            more = f", … {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
            parts.append(f"{sum(self.dropped.values()):,} dropped: {named}{more}")
        return "; ".join(parts)
