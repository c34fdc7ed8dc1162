"""TensorBoard's events as Python values: the few fields that are shown, of protobuf messages without its library."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from torcheer.foreign.readers.protobuf import Messages, is_list_of, real, signed, text

_NUMPY: Final = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}  # of dtypes
_LISTED: Final = {5: 1, 6: 2}  # fields of a tensor's numbers as they lie in memory -> their dtype
_EMPTY: Final = memoryview(b"")
# An event with one number, as torch's SummaryWriter writes it: time, step, one value of a short tag.
_SCALAR: Final = re.compile(rb"\t(.{8})(?:\x10([\x80-\xff]{0,9}[\x00-\x7f]))?\*(.)\n(.)\n(.)(.*)\x15(.{4})", re.DOTALL)
_NUMBERS: Final = struct.Struct("<df")


class Histogram(NamedTuple):
    """Counts between limits: `limits[n - 1]` to `limits[n]`; below the first limit is what is lowest."""

    limits: Any  # float64
    counts: Any


@dataclass(frozen=True, slots=True)
class EventValue:
    """One value of an event."""

    step: int
    time_secs: float
    tag: str
    kind: str  # "scalar", "histogram", "image", "audio", "text", "hparams"
    value: Any  # of images and sound their bytes in the file


class EventReader:
    """Reads the values of events, record by record."""

    def __init__(self, messages: Messages) -> None:
        self._fields, self._last, self._numbers = messages.fields, messages.last, messages.numbers

    def values(self, record: memoryview) -> Iterator[EventValue]:
        """Yield what an event says; raises `ArchiveDamaged` for bytes that are none."""
        if len(record) < 150 and (scalar := _scalar(bytes(record))) is not None:
            yield scalar
            return
        time_secs, step, summaries = 0.0, 0, list[Any]()
        for number, value in self._fields(record):
            if number == 1:
                time_secs = real(value, "<d") or 0.0
            elif number == 2 and isinstance(value, int):
                step = signed(value)
            elif number == 5:
                summaries.append(value)
        time_secs = time_secs if math.isfinite(time_secs) else 0.0
        for summary in summaries:
            for number, value in self._fields(summary):
                if number == 1:
                    yield from self._value(value, step, time_secs)

    def _value(self, message: Any, step: int, time_secs: float) -> Iterator[EventValue]:
        fields = self._last(message)
        tag = text(fields.get(1))
        plugin, content = self._plugin(fields[9]) if 9 in fields else ("", _EMPTY)

        def event(kind: str, value: Any) -> EventValue:
            return EventValue(step, time_secs, tag, kind, value)

        if plugin == "hparams":
            if hparams := self._hparams(content):
                yield event("hparams", hparams)
        elif (number := real(fields.get(2), "<f")) is not None:
            yield event("scalar", number)
        elif 5 in fields:
            histogram = self._last(fields[5])
            yield event("histogram", _histogram(_doubles(histogram.get(6)), _doubles(histogram.get(7))))
        elif 4 in fields:
            yield event("image", self._last(fields[4]).get(4, _EMPTY))
        elif 6 in fields:
            yield event("audio", self._last(fields[6]).get(4, _EMPTY))
        elif 8 in fields:
            yield from (event(kind, value) for kind, value in self._tensor_values(plugin, fields[8]))

    def _plugin(self, metadata: Any) -> tuple[str, Any]:
        """The plugin that a value is for, and what is said to it."""
        fields = self._last(self._last(metadata).get(1, _EMPTY))
        return text(fields.get(1)), fields.get(2, _EMPTY)

    # -- tensors -----------------------------------------------------------------------------------------------------

    def _tensor_values(self, plugin: str, message: Any) -> Iterator[tuple[str, Any]]:
        """Kind and value of a tensor: a number, text, images, sounds, a histogram as rows of left, right and count."""
        dtype, shape, texts, numbers = self._tensor(message)
        if dtype == 7:
            if plugin == "images":  # width, height, then images
                yield from (("image", part) for part in texts[2:])
            elif plugin == "audio":  # sounds, each with a label
                yield from (("audio", part) for part in texts[::2])
            elif plugin == "text":
                yield "text", "\n\n".join(text(part) for part in texts[:1000])
        elif plugin == "histograms" and numbers.size and numbers.size % 3 == 0:
            rows = numbers.astype(np.float64).reshape(-1, 3)
            yield "histogram", _histogram(rows[:, 1], rows[:, 2])
        elif numbers.size == 1 and plugin in ("", "scalars") and not shape:
            yield "scalar", float(numbers.reshape(-1)[0])

    def _tensor(self, message: Any) -> tuple[int, tuple[int, ...], list[Any], Any]:
        dtype, shape, texts, raw = 0, tuple[int, ...](), list[Any](), _EMPTY
        listed, whole = list[bytes](), list[int]()
        for number, value in self._fields(message):
            if number == 1 and isinstance(value, int):
                dtype = value
            elif number == 2:
                shape = tuple(self._size(part) for field, part in self._fields(value) if field == 2)
            elif number == 4 and isinstance(value, memoryview):
                raw = value
            elif number == 8:
                texts.append(value)
            elif number in _LISTED and is_list_of(value, np.dtype(_NUMPY[_LISTED[number]]).itemsize):
                listed.append(bytes(value))
            elif number in (7, 10):
                whole += self._numbers(value)
        if dtype not in _NUMPY:
            return dtype, shape, texts, np.empty(0)
        item = np.dtype(_NUMPY[dtype])
        if raw or listed:
            joined = bytes(raw) if raw else b"".join(listed)
            return dtype, shape, texts, np.frombuffer(joined[: len(joined) // item.itemsize * item.itemsize], item)
        return dtype, shape, texts, np.array([signed(number) for number in whole], np.int64)

    def _size(self, dimension: Any) -> int:
        size = self._last(dimension).get(1, 0)
        return size if isinstance(size, int) else 0

    # -- settings ----------------------------------------------------------------------------------------------------

    def _hparams(self, content: Any) -> dict[str, Any]:
        """The settings of a run, as `add_hparams` says them at its start."""
        hparams: dict[str, Any] = {}
        for number, entry in self._fields(self._last(content).get(3, _EMPTY)):
            if number == 1:
                pair = self._last(entry)
                hparams[text(pair.get(1))] = self._plain(pair.get(2, _EMPTY))
        return {name: value for name, value in hparams.items() if name and value is not None}

    def _plain(self, message: Any) -> Any:
        for number, value in self._fields(message):
            if number == 2:
                return real(value, "<d")
            if number == 3:
                return text(value)
            if number == 4:
                return bool(value)
        return None


def _doubles(packed: Any) -> Any:
    whole = len(packed) // 8 * 8 if isinstance(packed, memoryview) else 0
    return np.frombuffer(packed[:whole], "<f8") if whole else np.empty(0)


def _histogram(limits: Any, counts: Any) -> Histogram:
    count = min(len(limits), len(counts))
    return Histogram(limits[:count], counts[:count])


def _scalar(record: bytes) -> EventValue | None:
    """The number of an event with nothing but a number; None for another event, which is read field by field."""
    found = _SCALAR.fullmatch(record)
    if found is None:
        return None
    time, digits, summary, value, length, tag, number = found.groups()
    size = len(tag) + 7  # of the value: tag and number with what stands before each
    if (length[0], value[0], summary[0]) != (len(tag), size, size + 2) or summary[0] > 127:
        return None
    step = signed(sum((byte & 127) << 7 * place for place, byte in enumerate(digits or b"")) & (2**64 - 1))
    time_secs, scalar = _NUMBERS.unpack(time + number)
    return EventValue(
        step, time_secs if math.isfinite(time_secs) else 0.0, tag.decode("utf-8", "replace"), "scalar", scalar
    )
