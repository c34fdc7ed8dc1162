"""Reads files of other programs: in this process for the person who loads one, in another for all that serves pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.foreign.reading_process import Lost, ReadingProcess
from torcheer.foreign.request import Answer, Request

Ask = Callable[[Request, Callable[[str], int]], Answer]

# Weights and logs apart: an hour of a hostile log must not keep anybody from looking at a model.
_PROCESSES: Final = (
    ReadingProcess("gguf", "onnx", "pt2", "safetensors", "torch_zip"),
    ReadingProcess("events", "lightning", "media", cpu_secs=60.0),
)


def read_apart(request: Request, open_file: Callable[[str], int]) -> Answer:
    """Read in a process that can be lost; raises what `readers.read` does, and `Lost`."""
    return _process_of(request.reader).ask(request, open_file)


def read_here(request: Request, open_file: Callable[[str], int]) -> Answer:
    """Read in this process: for a file that the person at this keyboard loads."""
    answer: Answer = import_module("torcheer.foreign.readers.read").read(request, open_file)
    return answer


def start_reading(reader: str) -> None:
    """Start the process of a reader, without waiting for it."""
    _process_of(reader).start()


def _process_of(reader: str) -> ReadingProcess:
    return next(process for process in _PROCESSES if reader in process.readers)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file, or folder, in errors of its reading."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadArgument(f"{path}: {error.strerror or error}") from None
    except (ArchiveDamaged, BadArgument) as error:
        kind = ArchiveDamaged if isinstance(error, Lost) else type(error)
        raise kind(f"{path}: {error}") from error
