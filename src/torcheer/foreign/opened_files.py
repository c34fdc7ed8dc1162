"""The files of one reading: opened once, beneath one folder, and mapped from the same descriptors afterwards."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.foreign.beneath import home_of, open_beneath


class OpenedFiles:
    """Opens the files that a reading names, and maps what it says of them."""

    def __init__(self, folder: Path, within: Path | None = None, named: Path | None = None) -> None:
        """`folder`: in which the files lie.

        - `within`: a folder around it out of which no link may lead; without one, where `home_of` says.
        - `named`: a file that a person has named, which may be a link to anywhere.
        """
        self._within = within if within is not None else folder if named is None else home_of(named)
        self._prefix = os.path.relpath(folder, self._within)
        self._named = named
        self._descriptors: dict[str, int] = {}

    def open_once(self, name: str) -> int:
        """A descriptor of a file that is not mapped here, which the caller closes."""
        return self._open(name)

    def open(self, name: str) -> int:
        """A descriptor of a file, which the caller closes; another stays open, so that it can be mapped."""
        if name not in self._descriptors:
            self._descriptors[name] = self._open(name)
        return os.dup(self._descriptors[name])

    def _open(self, name: str) -> int:
        if self._named is None or name != self._named.name:
            return open_beneath(self._within, name if self._prefix == os.curdir else os.path.join(self._prefix, name))
        descriptor = os.open(self._named, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BadArgument(f"{self._named} is no file")
        return descriptor

    def mapped(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a file that was opened; what is not looked at does not come into memory."""
        if name not in self._descriptors:
            raise ArchiveDamaged(f"its reader has not opened {name!r}")
        with os.fdopen(os.dup(self._descriptors[name]), "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return np.zeros(0, np.uint8)
            data: Any = np.memmap(file, np.uint8, "r")
            return data  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the descriptors; what was mapped stays."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
