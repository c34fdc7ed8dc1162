"""Mounts of `faulty_storage.py`, and why there can be none."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from children import Child
from waiting import wait_until


def _missing() -> str:
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy is not installed here; `make test-dist` has it"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        return "no FUSE: /dev/fuse or fusermount3 (Debian's fuse3) is missing"
    return ""


MISSING = _missing()


@contextmanager
def mounted(folder: Path, place: Path, faults: Path, late_secs: float) -> Iterator[Path]:
    """Mount a folder again at a place, until the end."""
    place.mkdir()
    with Child(Path(__file__).parent / "faulty_storage.py", folder, place, faults, late_secs) as server:
        wait_until(lambda: os.path.ismount(place) or server.poll() is not None, "the mount")
        assert server.poll() is None, server.error_text
        try:
            yield place
        finally:
            subprocess.run(["fusermount3", "-u", "-z", place], check=True)
            server.wait()


def see_through(mount: Path, place: Path) -> None:
    """Let this process, alone, find at a place what is in a mount: machines have their own mounts under one path."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, bind, recursive, private = 0x00020000, 0x1000, 0x4000, 0x40000
    none = ctypes.c_void_p()
    for status in (
        libc.unshare(new_namespace),
        libc.mount(none, b"/", none, ctypes.c_ulong(recursive | private), none),
        libc.mount(os.fsencode(mount), os.fsencode(place), none, ctypes.c_ulong(bind), none),
    ):
        if status:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(place))
