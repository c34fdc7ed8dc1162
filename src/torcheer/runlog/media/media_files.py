"""Logged images as pixels and PNG, logged sound as numbers to play and WAV."""

from __future__ import annotations

import io
import math
import struct
import wave
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.errors import ArchiveDamaged
from torcheer.terminal import human_number

Array = NDArray[Any]
_GAP: Final = 2  # pixels between the images of a batch
_COLOUR_TYPES: Final = {1: 0, 3: 2, 4: 6}  # channels -> PNG's colour type


def pixels_of(array: Array, layout: str) -> Array:
    """An image as uint8 of height × width × channels; a batch as a grid with transparent gaps.

    Floats are clipped to 0…1, NaN is black: `image_note` says where that changes what is seen.
    """
    order = [layout.index(axis) for axis in "NHWC" if axis in layout]
    if len(layout) != array.ndim or "H" not in layout or "W" not in layout:
        raise ArchiveDamaged(f"an image of the shape {array.shape} is not {layout!r}")
    images = _bytes_of(array.transpose(order))
    images = images if "C" in layout else images[..., None]
    if images.shape[-1] not in _COLOUR_TYPES:
        raise ArchiveDamaged(f"an image with {images.shape[-1]} channels; 1, 3 and 4 can be drawn")
    return _grid(images) if "N" in layout else images


def _bytes_of(array: Array) -> Array:
    if array.dtype == np.uint8:
        return array
    with np.errstate(invalid="ignore"):
        numbers = np.nan_to_num(real_numbers(array), nan=0.0, posinf=1.0, neginf=0.0)
        return np.asarray(np.rint(np.clip(numbers, 0.0, 1.0) * 255), np.uint8)


def _grid(images: Array) -> Array:
    count, height, width, channels = images.shape
    if count == 1:
        return np.asarray(images[0])
    columns = min(count, max(1, math.ceil(math.sqrt(count * 1.6 * height / max(width, 1)))))  # wider than high
    rows = -(-count // columns)
    grid = np.zeros((rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 4), np.uint8)
    for place, image in enumerate(images):
        row, column = divmod(place, columns)
        cell = grid[row * (height + _GAP) :, column * (width + _GAP) :][:height, :width]
        cell[..., :3] = image[..., :3]
        cell[..., 3] = image[..., 3] if channels == 4 else 255
    return grid


def image_note(array: Array) -> str:
    """What a picture of these numbers does not show: those outside of 0…1, NaN; "" if it shows all."""
    if array.dtype in (np.uint8, np.bool_):
        return ""
    numbers = real_numbers(array)
    finite = numbers[np.isfinite(numbers)]
    notes = [f"{numbers.size - finite.size:,} NaN or infinite"] if finite.size < numbers.size else []
    if finite.size and (finite.min() < 0 or finite.max() > 1):
        span = f"{human_number(float(finite.min()))} to {human_number(float(finite.max()))}"
        notes.append(f"numbers from {span}, shown clipped to 0 to 1")
    return "; ".join(notes)


def png_bytes(pixels: Array) -> bytes:
    """Encode pixels, uint8 of height × width × 1, 3 or 4 channels, as PNG."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def sound_of(array: Array) -> NDArray[np.int16]:
    """Sound as int16, channels × numbers; floats from -1 to 1, what is louder is clipped."""
    numbers = array if array.ndim == 2 else array.reshape(1, -1)
    if numbers.dtype == np.int16:
        return numbers
    if numbers.dtype == np.int32:
        return (numbers >> 16).astype(np.int16)
    finite = np.nan_to_num(real_numbers(numbers), nan=0.0, posinf=1.0, neginf=-1.0)
    return np.asarray(np.rint(np.clip(finite, -1.0, 1.0) * 32767), np.int16)


def sound_note(array: Array) -> str:
    """What is not heard of these numbers: those beyond -1…1, NaN; "" if all is."""
    if array.dtype.kind == "i":
        return ""
    numbers = real_numbers(array)
    finite = numbers[np.isfinite(numbers)]
    notes = [f"{numbers.size - finite.size:,} NaN or infinite"] if finite.size < numbers.size else []
    if finite.size and (loudest := float(np.abs(finite).max())) > 1:
        notes.append(f"up to {human_number(loudest)}, clipped to 1")
    return "; ".join(notes)


def wav_bytes(array: Array, rate: int) -> bytes:
    """Encode sound as a WAV file of 16 bits."""
    sound, file = sound_of(array), io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(sound.shape[0])
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(sound.T.astype("<i2").tobytes())
    return file.getvalue()
