"""TensorBoard's events as Python values: the few fields that are shown, of protobuf messages without its library."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

_FIXED: Final = {1: 8, 5: 4}  # bytes of a field by its wire type
_VARINT, _BYTES = 0, 2
_NUMPY: Final = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}  # of dtypes
_PACKED: Final = {5: ("<f4", 1), 6: ("<f8", 2)}  # fields of a tensor's numbers that are packed, and their dtypes


class Histogram(NamedTuple):
    """Counts between limits: `limits[n - 1]` to `limits[n]`; below the first limit is what is lowest."""

    limits: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EventValue:
    """One value of an event."""

    step: int
    time_secs: float
    tag: str
    kind: str  # "scalar", "histogram", "image", "audio", "text", "hparams"
    value: Any


class InvalidProtobuf(ValueError):
    """Bytes that are no protobuf message."""


def values_of(record: bytes) -> Iterator[EventValue]:
    """Yield what an event says; raises `InvalidProtobuf` for bytes that are none."""
    time_secs, step, summaries = 0.0, 0, list[bytes]()
    for number, value in fields_of(record):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            time_secs = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields_of(summary):
            if number == 1 and isinstance(value, bytes):
                yield from _value(value, step, time_secs)


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of a message's fields; fixed ones as their bytes."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, offset = _varint(message, offset)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, offset = _varint(message, offset)
        elif wire_type in _FIXED:
            length = _FIXED[wire_type]
        else:
            raise InvalidProtobuf(f"a field of the type {wire_type}")
        if offset + length > len(message):
            raise InvalidProtobuf("a field that ends outside of its message")
        yield number, message[offset : offset + length]
        offset += length


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(message) and shift < 70:
        byte = message[offset]
        value, offset, shift = value | (byte & 127) << shift, offset + 1, shift + 7
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, offset
    raise InvalidProtobuf("a number without an end")


def _value(message: bytes, step: int, time_secs: float) -> Iterator[EventValue]:
    fields = dict(fields_of(message))
    tag, plugin, content = _text(fields.get(1)), *_plugin(fields.get(9))

    def event(kind: str, value: Any) -> EventValue:
        return EventValue(step, time_secs, tag, kind, value)

    if plugin == "hparams":
        if hparams := _hparams(content):
            yield event("hparams", hparams)
    elif isinstance(number := fields.get(2), bytes):
        yield event("scalar", struct.unpack("<f", number)[0])
    elif isinstance(histogram := fields.get(5), bytes):
        yield event("histogram", _histogram(histogram))
    elif isinstance(image := fields.get(4), bytes):
        yield event("image", dict(fields_of(image)).get(4, b""))
    elif isinstance(audio := fields.get(6), bytes):
        yield event("audio", dict(fields_of(audio)).get(4, b""))
    elif isinstance(tensor := fields.get(8), bytes):
        yield from (event(kind, value) for kind, value in _tensor_values(plugin, tensor))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _plugin(metadata: Any) -> tuple[str, bytes]:
    """The plugin that a value is for, and what is said to it."""
    data = dict(fields_of(metadata)).get(1) if isinstance(metadata, bytes) else None
    fields = dict(fields_of(data)) if isinstance(data, bytes) else {}
    content = fields.get(2)
    return _text(fields.get(1)), content if isinstance(content, bytes) else b""


def _histogram(message: bytes) -> Histogram:
    fields = dict(fields_of(message))
    limits, counts = (_doubles(fields.get(number)) for number in (6, 7))
    return Histogram(limits[: len(counts)], counts[: len(limits)])


def _doubles(packed: Any) -> tuple[float, ...]:
    whole = len(packed) // 8 * 8 if isinstance(packed, bytes) else 0
    return tuple(np.frombuffer(packed[:whole], "<f8").tolist()) if whole else ()


# -- tensors -----------------------------------------------------------------------------------------------------------


def _tensor_values(plugin: str, message: bytes) -> Iterator[tuple[str, Any]]:
    """Kind and value of a tensor: a number, text, images, sounds, a histogram as rows of left, right and count."""
    dtype, shape, texts, numbers = _tensor(message)
    if dtype == 7:
        if plugin == "images":  # width, height, then images
            yield from (("image", text) for text in texts[2:])
        elif plugin == "audio":  # sounds, each with a label
            yield from (("audio", text) for text in texts[::2])
        elif plugin == "text":
            yield "text", "\n\n".join(_text(text) for text in texts)
    elif plugin == "histograms" and numbers.size and numbers.size % 3 == 0:
        rows = numbers.reshape(-1, 3)
        yield "histogram", Histogram(tuple(rows[:, 1].tolist()), tuple(rows[:, 2].tolist()))
    elif numbers.size == 1 and plugin in ("", "scalars") and not shape:
        yield "scalar", float(numbers.reshape(-1)[0])


def _tensor(message: bytes) -> tuple[int, tuple[int, ...], list[bytes], Any]:
    dtype, shape, texts, numbers = 0, tuple[int, ...](), list[bytes](), np.empty(0)
    singles: list[bytes] = []
    for number, value in fields_of(message):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 2 and isinstance(value, bytes):
            shape = tuple(_size(part) for field, part in fields_of(value) if field == 2 and isinstance(part, bytes))
        elif number == 8 and isinstance(value, bytes):
            texts.append(value)
        elif number == 4 and isinstance(value, bytes) and dtype in _NUMPY:
            item = np.dtype(_NUMPY[dtype])
            numbers = np.frombuffer(value[: len(value) // item.itemsize * item.itemsize], item)
        elif number in _PACKED and isinstance(value, bytes):
            singles.append(value)
        elif number in (7, 10) and isinstance(value, int):
            numbers = np.append(numbers, value)
    if singles and dtype in (1, 2):
        item = np.dtype(_NUMPY[dtype])
        joined = b"".join(singles)
        numbers = np.frombuffer(joined[: len(joined) // item.itemsize * item.itemsize], item)
    return dtype, shape, texts, numbers


def _size(dimension: bytes) -> int:
    size = dict(fields_of(dimension)).get(1, 0)
    return size if isinstance(size, int) else 0


def _hparams(content: bytes) -> dict[str, Any]:
    """The settings of a run, as `add_hparams` says them at its start."""
    started = dict(fields_of(content)).get(3)
    hparams: dict[str, Any] = {}
    for number, entry in fields_of(started) if isinstance(started, bytes) else ():
        if number == 1 and isinstance(entry, bytes):
            pair = dict(fields_of(entry))
            value = pair.get(2)
            hparams[_text(pair.get(1))] = _plain(value) if isinstance(value, bytes) else None
    return {name: value for name, value in hparams.items() if name and value is not None}


def _plain(message: bytes) -> Any:
    for number, value in fields_of(message):
        if number == 2 and isinstance(value, bytes) and len(value) == 8:
            return struct.unpack("<d", value)[0]
        if number == 3:
            return _text(value)
        if number == 4:
            return bool(value)
    return None
