"""What a forked process, such as a DataLoader worker, must not keep of its parent: one registry for the package."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An object with something that a forked process must close or renew."""

    def after_fork(self) -> None:
        """Called in the forked process. Locks may be held by threads that do not exist there: take none."""


_OBJECTS: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(forkable: Forkable) -> None:
    """Call `forkable.after_fork()` in every process forked from this one, as long as the object lives."""
    _OBJECTS.add(forkable)


def _run() -> None:
    for forkable in list(_OBJECTS):
        forkable.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run)
