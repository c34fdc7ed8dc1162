"""The lock of a run directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torcheer.disk import explain_write_errors, lock_folder


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory.

    A second writer is refused, a killed one leaves no lock.
    """
    with explain_write_errors(directory):
        lock = lock_folder(directory, "trained")
    try:
        yield
    finally:
        lock.close()
