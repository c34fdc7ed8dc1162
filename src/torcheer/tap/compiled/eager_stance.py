"""Run compiled functions as the Python they were made from, while anybody asks for it."""

from __future__ import annotations

import threading
from typing import Any

import torch


class EagerStance:
    """Torch's stance for compiled functions, which holds for the whole process: from the first user to the last.

    Each user restoring what it had met would leave it on for ever where two of them overlap in two threads.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._stance = threading.Lock(), 0, None

    _stance: Any

    @property
    def is_on(self) -> bool:
        """Whether compiled functions run as their original Python."""
        return self._users > 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._stance = torch.compiler.set_stance("force_eager")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._stance.__exit__(None, None, None)


EAGER_STANCE = EagerStance()
