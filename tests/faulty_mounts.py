"""Mounts of `faulty_storage.py`, and why there can be none."""

from __future__ import annotations

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
