"""Reads what is asked for; whatever goes wrong is the file's fault, and an error of torcheer's."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.foreign.program_nodes import Program, plain_program
from torcheer.foreign.readers.reading import Reading
from torcheer.foreign.request import Answer, Request

READERS: Final = {  # name -> its module, whose `read` it is
    "safetensors": "weights.safetensors_file", "gguf": "weights.gguf_file", "torch_zip": "weights.torch_zip",
    "pt2": "weights.pt2_file", "onnx": "weights.onnx_file", "events": "logs.event_folder",
    "lightning": "logs.lightning_folder", "media": "logs.encoded_media",
}  # fmt: skip


def load_reader(name: str) -> Any:
    """The module of a reader."""
    return import_module(f"torcheer.foreign.readers.{READERS[name]}")


def read(request: Request, open_file: Callable[[str], int]) -> Answer:
    """Read a file or a folder.

    - `open_file`: gives a descriptor, which is closed here, of a file that the request or the file itself names.

    Raises `ArchiveDamaged` or `BadArgument`; their text says where in the file, and leaves its path to the caller.
    """
    if request.reader not in READERS:
        raise ArchiveDamaged(f"there is no reader {request.reader!r}")
    reader = load_reader(request.reader)
    reading = Reading(request, open_file)
    try:
        body = reader.read(reading)
    except (TorcheerError, FileNotFoundError):
        raise
    except MemoryError:
        raise ArchiveDamaged("it needs more memory to be read than there is for it") from None
    except Exception as error:  # a reader trips over a file in any way there is
        raise ArchiveDamaged(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    if isinstance(program := body.get("program"), Program):
        body["program"] = plain_program(program)
    return Answer(body, bytes(reading.blob), tuple(reading.files))
