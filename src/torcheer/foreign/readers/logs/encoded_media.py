"""Pictures and sounds as numbers; a picture is looked at before it is decoded, as a small file may hold a huge one."""

from __future__ import annotations

import io
import wave
from typing import Any, Final

import numpy as np

from torcheer.errors import ArchiveDamaged
from torcheer.foreign.readers.reading import Reading

_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # which TensorBoard's writers make
_WAV_TYPES: Final = {1: "u1", 2: "<i2", 4: "<i4"}  # by bytes a number


def read(reading: Reading) -> dict[str, Any]:
    """Decode the part of a file that is asked for: an image as uint8, a sound as channels × numbers."""
    kind, begin, end = reading.part or ("image", 0, 0)
    (name,) = reading.names
    encoded = reading.read(reading.file(name), begin, end)
    array = _picture(encoded, reading) if kind == "image" else _sound(encoded, reading)
    reading.keep(array.tobytes())
    return {"shape": list(array.shape), "type": str(array.dtype)}


def _picture(encoded: bytes, reading: Reading) -> Any:
    try:
        from PIL import Image

        Image.preinit()  # its readers of formats, of which `formats` leaves few
    except ImportError:
        raise ArchiveDamaged("pictures of TensorBoard need pillow: pip install 'torcheer[all]'") from None
    Image.MAX_IMAGE_PIXELS = None  # its own limit warns, and refuses only what is twice as large
    try:
        with Image.open(io.BytesIO(encoded), formats=_FORMATS) as image:
            reading.budget.spend("pixels", image.width * image.height, "the picture")
            return np.asarray(image.convert("RGBA" if "A" in image.mode else "RGB"))
    except (OSError, ValueError, SyntaxError, OverflowError, RuntimeError, EOFError) as error:
        if isinstance(error, ArchiveDamaged):
            raise
        raise ArchiveDamaged(f"it is no picture that can be decoded: {error}") from None


def _sound(encoded: bytes, reading: Reading) -> Any:
    """The sound of a WAV file, channels × numbers."""
    try:
        with wave.open(io.BytesIO(encoded)) as reader:
            channels, width = reader.getnchannels(), reader.getsampwidth()
            if width not in _WAV_TYPES:
                raise ArchiveDamaged(f"its sound has {8 * width} bits a number, which is not decoded")
            data = reader.readframes(min(reader.getnframes(), len(encoded)))
            numbers = np.frombuffer(data, _WAV_TYPES[width]).reshape(-1, channels).T
            return np.ascontiguousarray(numbers.astype(np.int16) - 128 << 8 if width == 1 else numbers)
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:
        if isinstance(error, ArchiveDamaged):
            raise
        raise ArchiveDamaged(f"it is no sound that can be decoded: {error}") from None


def sound_rate(encoded: memoryview) -> int:
    """Numbers a second of a WAV file; 0 where it is none: what shows it says so."""
    try:
        with wave.open(io.BytesIO(bytes(encoded[:4096]))) as reader:
            return int(reader.getframerate())
    except (wave.Error, EOFError, ValueError, RuntimeError):
        return 0
