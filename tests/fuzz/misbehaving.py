"""Readers with the faults that a fuzzer has to find: they crash, hang, swell, or raise what they should not."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from torcheer.errors import ArchiveDamaged


def _crash(path: Path) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _loop(path: Path) -> Any:
    while True:
        pass


def _loop_in_c(path: Path) -> Any:
    re.fullmatch(r"(a+)+b", "a" * 60)


def _swell(path: Path) -> Any:
    return len(b"x" * (600 << 20))


def _take_too_much(path: Path) -> Any:
    try:
        return len(bytearray(8 << 30))
    except MemoryError as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error!r}") from None


def _raise(path: Path) -> Any:
    raise ValueError("no error of torcheer")


def _refuse_without_a_name(path: Path) -> Any:
    raise ArchiveDamaged("something is damaged")


def _refuse(path: Path) -> Any:
    raise ArchiveDamaged(f"{path} is damaged")


def _raise_in_a_thread(path: Path) -> Any:
    import threading

    thread = threading.Thread(target=_raise, args=(path,))
    thread.start()
    thread.join()


def _read(path: Path) -> Any:
    time.sleep(0.01)
    return {"tensors": {"x": ["float32", [2], "abc"]}}


DOORS: Final[dict[str, Callable[[Path], Any]]] = {
    "crash": _crash, "loop": _loop, "loop in C": _loop_in_c, "swell": _swell, "take too much": _take_too_much,
    "raise": _raise, "refuse without a name": _refuse_without_a_name, "refuse": _refuse,
    "raise in a thread": _raise_in_a_thread, "read": _read,
}  # fmt: skip
