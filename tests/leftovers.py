"""What a process still holds after a test: files, threads, shared memory.

Objects of earlier tests may be collected meanwhile and close theirs, and other processes have shared memory of their
own: tests ask whether anything was added.
"""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path


def open_files() -> int:
    """Return how many descriptors are open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def shared_memory() -> list[str]:
    """Return the names of our shared memory."""
    return sorted(name for name in os.listdir("/dev/shm") if "torcheer" in name or f"_{os.getpid()}_" in name)


def traces() -> tuple[int, ...]:
    """Return what this process holds: descriptors, threads, children, mappings of rings, names in shared memory."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    maps = Path("/proc/self/maps").read_text().count("torcheer-ring")
    return open_files(), threading.active_count(), len(children), maps, len(shared_memory())


def nothing_added(after: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Return whether no count has grown."""
    return len(after) == len(before) and all(now <= then for now, then in zip(after, before))
